(* Certificates: what the file says, what that means by the definitions of the library, and a check that
  implies it. *)
(*                                                                                                         *)
(*   json, print      a certificate's JSON and its canonical form; a file is accepted only if it is what   *)
(*                    print makes of the JSON that was read, so that the reader need not be trusted        *)
(*   read             the claim that the JSON makes, for the kinds that are covered                        *)
(*   statement        what the claim means                                                                 *)
(*   certain          a check without randomness; certain_sound: it implies the statement                  *)
(*   probable, passed a check with k random vectors; probable_sound: if the statement is false, at most    *)
(*                    one in 2^100 of the lists of vectors is accepted                                     *)
From Coq Require Import ZArith Lia String Ascii.
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words MatchingSystem Emulation Selection Decision SharedBounds
  Spanning BaseChange Counting Residual ResidualWords ResidualSystem ResidualDecision ResidualTied NarrowHeads.
From UtfproofChecker Require Import Layers Integers Streams Witness Hosts Triangular Arithmetic Identity Kernel.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory.

(* --- the file --- *)
Inductive json := Num (z : Z) | Str (s : string) | Yes | Arr (l : seq json) | Obj (l : seq (string * json)).

Local Open Scope string_scope.
Definition one (n : nat) : string := String (ascii_of_nat n) EmptyString.
Definition quoted (s : string) : string := one 34 ++ s ++ one 34.
Fixpoint digits (fuel : nat) (z : Z) (tail : string) : string := if fuel is n.+1 then
  let tail := one (48 + Z.to_nat (Z.modulo z 10)) ++ tail in
  if Z.ltb z 10 then tail else digits n (Z.div z 10) tail else tail.
Definition decimal (z : Z) : string :=
  let a := Z.abs z in
  (if Z.ltb z 0 then "-" else "") ++ digits (Z.to_nat (Z.log2 a)).+1 a "".
Fixpoint joined (l : seq string) : string := match l with
  | [::] => "" | [:: s] => s | s :: l' => s ++ "," ++ joined l' end.
Fixpoint print (j : json) : string := match j with
  | Num z => if Z.ltb (Z.abs z) 9007199254740992 then decimal z else quoted (decimal z)
  | Str s => quoted s
  | Yes => "true"
  | Arr l => "[" ++ joined (map print l) ++ "]"
  | Obj l => "{" ++ joined (map (fun f => quoted f.1 ++ ":" ++ print f.2) l) ++ "}" end.
(* no character that JSON would escape *)
Fixpoint plain (s : string) : bool := if s is String c s' then
  let n := nat_of_ascii c in [&& 31 < n, n < 127, n != 34, n != 92 & plain s'] else true.
Fixpoint increasing (l : seq string) : bool := match l with
  | s :: ((s' :: _) as l') => (if String.compare s s' is Lt then true else false) && increasing l' | _ =>
    true end.
Fixpoint canonical (j : json) : bool := match j with
  | Str s => plain s
  | Arr l => all canonical l
  | Obj l => increasing (map fst l) && all (fun f => plain f.1 && canonical f.2) l
  | _ => true end.

(* --- the claim --- *)
Record shape := Shape { heads : nat; depth : nat; head_dim : nat; d_in : nat; d_out : nat; width : nat; stream : bool }.
Inductive construction :=
  | Sparse | SparseFront | Tied | SharedKey | SharedQuery | PrintedSingle | PrintedRow | PrintedColumn | PrintedLooped.
Inductive named :=
  | Random (tied : bool) (t : dtype) (f : law) (seed : Z)
  | Built (c : construction)
  | Stored (tied : bool) (digest : string).
(* hosts of the identity kind *)
Inductive embedded :=
  | ESharedKey | ESharedQuery | ERegister | ETwoSided | ECounting.
Inductive claim :=
  | Universal (h : named) (rank : Z)      (* by matching, all untied targets *)
  | UniversalTied (h : named) (rank : Z)  (* by matching, all tied targets *)
  | Matched (h : named) (rank : Z)        (* by matching, all tied targets of width d_in *)
  | Serves (h : named) (rank : Z)         (* by attention-matching, all untied targets *)
  | Refuted (h : named)                   (* by matching, all untied targets *)
  | RefutedTied (h : named)               (* by matching, all tied targets of width d_in *)
  | NoneMatches (tied_host : bool)        (* lower bounds: no host of this dimension or less; by matching *)
  | NoneMatchesTied                       (* nor for all tied targets *)
  | NoneServes                            (* by attention-matching, all untied targets *)
  | NoneShares (both : bool)              (* by shared attention, E free or E and U free *)
  | NoneSharesTied (both : bool)
  | Embeds (c : embedded) (inverses : bool)   (* for all targets, or those whose inverted matrices are invertible *)
  | NullVector (tied : bool) (V : seq (seq (mat Z))).  (* these value matrices: by shared attention, E and U free *)

Fixpoint same (l l' : seq string) : bool := match l, l' with
  | [::], [::] => true | s :: l, s' :: l' => String.eqb s s' && same l l' | _, _ => false end.
Definition fields (ks : seq string) (j : json) : option (seq json) :=
  if j is Obj l then if same (map fst l) ks then Some (map snd l) else None else None.
Definition says (s : string) (j : json) : bool := if j is Str s' then String.eqb s s' else false.
Definition small (j : json) : option nat :=
  if j is Num z then if Z.leb 1 z && Z.leb z 1000000 then Some (Z.to_nat z) else None else None.
Definition read_shape (j : json) : option shape :=
  let sized l r := match map small l with
    | [:: Some a; Some b; Some c; Some d; Some e; Some f] => Some (Shape d e c a b f r) | _ => None end in
  match fields [:: "d_in"; "d_out"; "head_dim"; "heads"; "layers"; "m"] j,
    fields [:: "d_in"; "d_out"; "head_dim"; "heads"; "layers"; "m"; "residual"] j with
  | Some l, _ => sized l false
  | _, Some [:: a; b; c; d; e; f; Yes] => sized [:: a; b; c; d; e; f] true
  | _, _ => None end.
Definition read_law (j : json) : option law :=
  if says "uniform" j then Some Uniform else if says "signs" j then Some Signs
  else if says "binomial" j then Some Binomial else None.
Definition read_dtype (j : json) : option dtype :=
  if says "float64" j then Some Float64 else if says "float32" j then Some (Rounded 24 149)
  else if says "float16" j then Some (Rounded 11 24) else if says "bfloat16" j then Some (Rounded 8 133) else None.
Definition read_construction (j : json) : option construction :=
  if says "sparse" j then Some Sparse else if says "sparse-front" j then Some SparseFront
  else if says "tied" j then Some Tied else if says "shared-key" j then Some SharedKey
  else if says "shared-query" j then Some SharedQuery else if says "printed-single-head" j then Some PrintedSingle
  else if says "printed-tree-row" j then Some PrintedRow else if says "printed-tree-column" j then Some PrintedColumn
  else if says "printed-looped" j then Some PrintedLooped else None.
(* the shapes at which a construction is defined *)
Definition defined_at (s : shape) (c : construction) : bool :=
  let: Shape H L d din dout m r := s in
  let S := word_count H L in
  let M := if r then res_matching_dimension H L d dout else matching_dimension H L d dout in
  match c with
  | Sparse => M <= m
  | Tied => (if r then res_tied_dimension H L d dout else M) <= m
  | SparseFront | PrintedRow | PrintedColumn => ~~ r && (M <= m)
  | SharedKey => [&& ~~ r, din <= d &
      din * S + maxn din dout * sumn [seq H ^ i | i <- iota 0 L] + dout * H ^ L <= m]
  | SharedQuery => [&& ~~ r, dout <= d & dout * (S + H ^ L) <= m]
  | PrintedSingle => [&& ~~ r, H == 1 & L.+1 * maxn (2 * d) dout <= m]
  | PrintedLooped => ~~ r && (S.+1 * maxn (2 * d) dout <= m) end%N.
Definition read_host (s : shape) (j : json) : option named :=
  match fields [:: "construction"] j, fields [:: "construction"; "dtype"; "law"; "seed"] j, fields [:: "system";
    "weights"] j with
  | Some [:: c], _, _ => if read_construction c is Some c then if defined_at s c then Some (Built c) else None else None
  | _, Some [:: c; t; f; Num seed], _ => if Z.leb 0 seed && Z.ltb seed 18446744073709551616 then
      match says "random" c, says "random-tied" c, read_dtype t, read_law f with
      | true, _, Some t, Some f => Some (Random false t f seed) | _, true, Some t, Some f => Some (Random true t f
        seed) | _, _, _, _ => None end
      else None
  | _, _, Some [:: y; Str w] => if says "universal" y then Some (Stored false w)
      else if says "looped-universal" y then Some (Stored true w) else None
  | _, _, _ => None end.
Definition every (j : json) : option bool :=
  if fields [:: "every"] j is Some [:: e] then
    if says "host" e then Some false else if says "tied host" e then Some true else None else None.
Definition listed A (f : json -> option A) (j : json) : option (seq A) :=
  if j is Arr l then let r := pmap f l in if size r == size l then Some r else None else None.
Definition integer (j : json) : option Z := if j is Num z then Some z else None.
Definition square (m : nat) (j : json) : option (mat Z) :=
  if listed (listed integer) j is Some B then if (size B == m) && all (fun r => size r == m) B then Some B else None
  else None.
Definition read_values (s : shape) (j : json) : option (bool * seq (seq (mat Z))) :=
  if fields [:: "R_V"; "system"] j is Some [:: V; y] then
    let tied := says "looped-shared-attention-universal" y in
    if listed (listed (square (width s))) V is Some V then
      if [&& tied || says "shared-attention-universal" y, size V == (if tied then 1%N else depth s) &
          all (fun l => size l == heads s) V] then Some (tied, V) else None
    else None
  else None.
(* the identity kind: which of the notions, and whether targets are tied *)
Inductive sense := Logits | FreeE | FreeBoth.
Definition sense_of (c : embedded) : sense := match c with
  | ESharedKey | ESharedQuery => Logits | ERegister | ECounting => FreeE | ETwoSided => FreeBoth end.
Definition tied_targets (c : embedded) : bool := match c with ECounting => true | _ => false end.
Definition embedded_at (s : shape) (c : embedded) : bool :=
  let: Shape H L d din dout m r := s in
  let narrow := din == 1%N in
  [&& ~~ r, din == dout & match c with
  | ESharedKey => defined_at s SharedKey | ESharedQuery => defined_at s SharedQuery
  | ERegister => (din * H ^ L <= m)%N
  | ETwoSided => (din * H ^ uphalf L <= m)%N
  | ECounting => [&& narrow, 0 < H & choose (L + H.-1) H.-1 <= m]%N end].
Definition read_embedded (j : json) : option embedded :=
  match fields [:: "construction"] j with
  | Some [:: c] => if says "shared-key" c then Some ESharedKey else if says "shared-query" c then Some ESharedQuery
    else if says "register" c then Some ERegister else if says "two-sided" c then Some ETwoSided
    else if says "counting" c then Some ECounting else None
  | _ => None end.
Definition read_embeds (s : shape) (h n t : json) (free : option json) : option claim :=
  if read_embedded h is Some c then
    let fits := match sense_of c, free with
      | Logits, None => says "attention-matching" n
      | FreeE, Some f => says "shared attention" n && says "E" f
      | FreeBoth, Some f => says "shared attention" n && says "E and U" f
      | _, _ => false end in
    if ~~ (fits && embedded_at s c) then None
    else if says (if tied_targets c then "all tied" else "all untied") t then Some (Embeds c false)
    else match c with
      | ESharedQuery => if says "untied with invertible M^(l,0)" t then Some (Embeds c true) else None
      | _ => None end
  else None.
Definition read_claim (s : shape) (kind j : json) : option claim :=
  let drawn h := if h is Built _ then false else true in
  let square := d_in s == d_out s in
  let paths := (depth s <= d_in s) && (depth s <= head_dim s) in
  match fields [:: "host"; "notion"; "rank"; "targets"; "verdict"] j, fields [:: "host"; "notion"; "targets";
    "verdict"] j, fields [:: "free"; "host"; "notion"; "targets"; "verdict"] j with
  | Some [:: h; n; Num r; t; v], _, _ =>
      if says "universal" v then if read_host s h is Some h then
        let untied := says "all untied" t in
        if says "matching" n then
          if says "rank-permutation" kind then match h with
            | Built Tied => if stream s && says "all tied" t then Some (UniversalTied h r)
                else if untied && (~~ stream s || (depth s == 1%N)) then Some (Universal h r) else None
            | Built Sparse | Built SparseFront => if untied then Some (Universal h r) else None
            | _ => None end
          else if says "rank-modular" kind && drawn h && untied then Some (Universal h r)
          else if [&& says "tied-kernel" kind, drawn h, says "all tied" t & square] then Some (Matched h r) else None
        else if [&& says "linear-test" kind, says "attention-matching" n, drawn h, untied, square, d_in s <= head_dim
          s & ~~ stream s] then Some (Serves h r) else None
      else None else None
  | _, Some [:: h; n; t; v], _ =>
      if says "identity" kind then if says "universal" v then read_embeds s h n t None else None
      else if [&& says "lower-bound" kind, says "not universal" v, says "attention-matching" n, says "all untied" t, square,
          ~~ stream s, (2 * head_dim s <= d_in s)%N & (1 < heads s)%N || (depth s <= 1)%N] then
        if every h is Some _ then Some NoneServes else None
      else if says "not universal" v && says "matching" n then
        if says "rank-deficient" kind then
          if read_host s h is Some h then if says "all untied" t then Some (Refuted h)
            else if says "all tied" t && square then Some (RefutedTied h) else None
          else None
        else if says "lower-bound" kind then
          if every h is Some tied then
            if says "all untied" t then Some (NoneMatches tied)
            else if [&& says "all tied" t, square, paths & ~~ stream s] then Some NoneMatchesTied else None
          else None
        else None
      else None
  | _, _, Some [:: f; h; n; t; v] =>
      if says "identity" kind then if says "universal" v then read_embeds s h n t (Some f) else None
      else if [&& says "lower-bound" kind, says "shared attention" n, says "not universal" v & ~~ stream s] then
        let both := says "E and U" f in
        if both || says "E" f then
          if every h then
            if says "all untied" t then if square then Some (NoneShares both) else None
            else if [&& says "all tied" t, d_in s == 1%N & d_out s == 1%N] then Some (NoneSharesTied both) else None
          else if [&& both, says "all untied" t & square] then
            if read_values s h is Some (tied, V) then Some (NullVector tied V) else None
          else None
        else None
      else None
  | _, _, _ => None end.
Definition read (file : string) (j : json) : option (shape * claim) :=
  if String.eqb file (print j) && canonical j then
    if fields [:: "claim"; "evidence"; "format"; "kind"; "shape"; "version"] j is Some [:: c; _; f; k; s;
      Num v] then
      if says "utfproof-certificate" f && Z.eqb v 2 then
        if read_shape s is Some s then if read_claim s k c is Some c then Some (s, c) else None else None
      else None
    else None
  else None.
Lemma read_file file j x : read file j = Some x -> file = print j.
Proof. by rewrite /read; case: String.eqb_spec. Qed.
Local Close Scope string_scope.
Local Open Scope ring_scope.

(* --- what it means --- *)
(* weights from a file: integers, each times 2^-wE. What file has a digest is for the reader of files to say. *)
Record stored := Weights { wS : nat -> nat -> head Z; wU : mat Z; wE : nat }.
(* (d + d_in) S + d_in H^L, the columns of the linear test *)
Definition serving_dimension (s : shape) : nat :=
  ((head_dim s + d_in s) * word_count (heads s) (depth s) + d_in s * heads s ^ depth s)%N.
Section Meaning.
Variables (files : bool -> string -> stored) (s : shape).
Notation H := (heads s). Notation L := (depth s). Notation d := (head_dim s). Notation m := (width s).
Definition columns : nat :=
  if stream s then res_matching_dimension H L d (d_out s) else matching_dimension H L d (d_out s).
Definition ones_of (c : construction) : ones := match c with
  | Sparse => sparse (stream s) H L d (d_out s) | SparseFront => sparse_front H L d (d_out s)
  | Tied => tied (stream s) H L d (d_out s)
  | SharedKey => shared_key H L d (d_in s) (d_out s) | SharedQuery => shared_query H L d (d_out s)
  | PrintedSingle => printed_single L d (d_out s) | PrintedRow => printed_tree false H L d (d_out s)
  | PrintedColumn => printed_tree true H L d (d_out s) | PrintedLooped => printed_looped H L d (d_out s) end.
(* the integers that stand for the entries, and the number that each is times *)
Definition heads_of (h : named) : nat -> nat -> head Z := match h with
  | Random t y f seed => random_head t y f seed d m | Built c => ones_head (ones_of c) d m
  | Stored t w => wS (files t w) end.
Definition out_of (h : named) : mat Z := match h with
  | Random _ y f seed => random_out y f seed (d_out s) m | Built c => ones_out (ones_of c) (d_out s) m
  | Stored t w => wU (files t w) end.
Definition factor (h : named) : Z * Z := match h with
  | Random _ y f _ => unit_of y f m | Built _ => (Zpos xH, Zpos xH)
  | Stored t w => (Zpos xH, Z.pow 2 (Z.of_nat (wE (files t w)))) end.

Section Host.
Variables (F : numFieldType) (h : named).
Definition integer_host : nat -> layer F H d m := host Z0 (inject F) H d m (heads_of h).
Definition integer_out : 'M[F]_(m, d_out s) := out Z0 (inject F) (d_out s) m (out_of h).
Definition unit : F := inject F (factor h).1 / inject F (factor h).2.
Definition true_host : nat -> layer F H d m := scaled unit (fun=> unit) integer_host.
Definition true_out : 'M[F]_(m, d_out s) := unit *: integer_out.
End Host.
Definition value_host (F : numFieldType) (tied : bool) (V : seq (seq (mat Z))) (l : nat) (h : 'I_H) : 'M[F]_m :=
  mof Z0 (inject F) m m (nth [::] (nth [::] V (if tied then 0%N else l)) h).

Definition embedded_ones (c : embedded) : ones := let b := d_in s in match c with
  | ESharedKey => shared_key H L d b b | ESharedQuery => shared_query H L d b | ERegister => register_alone H L b
  | ETwoSided => two_sided H L b | ECounting => counting H L end.
Definition embedded_host (F : numFieldType) c : nat -> layer F H d m :=
  host Z0 (inject F) H d m (ones_head (embedded_ones c) d m).
Definition embedded_out (F : numFieldType) c : 'M[F]_(m, d_in s) :=
  out Z0 (inject F) (d_in s) m (ones_out (embedded_ones c) (d_in s) m).
(* the letters that may be inverted: layer from 0, head *)
Definition inverted (c : embedded) (inverses : bool) (l h : nat) : bool := inverses && match c with
  | ESharedQuery => h == 0%N | _ => false end.

Definition matches_tied (F : numFieldType) (h : named) : Prop := if stream s
  then forall Q K V O, exists E : 'M[F]_(d_out s, m), res_matches L (true_host F h) (true_out F h) (layers (Decision.looped Q K V O)) E
  else universal_for_tied L (true_host F h) (true_out F h).
Definition rank_of (F : numFieldType) (h : named) : nat :=
  if stream s then \rank (res_Rall L (true_host F h) (true_out F h)) else \rank (Rall L (true_host F h) (true_out F h)).
Definition statement (c : claim) : Prop := match c with
  | Matched h rank => d_in s = d_out s /\ forall F : numFieldType, Z.of_nat (rank_of F h) = rank /\ matches_tied F h
  | RefutedTied h => d_in s = d_out s /\ forall F : numFieldType, ~ matches_tied F h
  | Embeds c inverses => d_in s = d_out s /\ forall (F : numFieldType) (T : transformer F H d (d_in s)),
      (tied_targets c -> looped T) -> (forall l (h : 'I_H), inverted c inverses l h -> lV (layers T l) h \in unitmx) ->
      match sense_of c with
      | Logits => exists E : 'M_(d_in s, m), matches_logits L (embedded_host F c) (embedded_out F c) (layers T) E
      | FreeE => exists E : 'M_(d_in s, m), shared_emulates L (values (embedded_host F c)) (values (layers T)) E
          (embedded_out F c) (@row_stochastic F)
      | FreeBoth => exists (E : 'M_(d_in s, m)) (U : 'M_(m, d_in s)),
          shared_emulates L (values (embedded_host F c)) (values (layers T)) E U (@row_stochastic F) end
  | Universal h rank => forall F : numFieldType, if stream s
      then [/\ \rank (res_Rall L (true_host F h) (true_out F h)) = columns, rank = Z.of_nat columns &
        res_carries_all (d_in s) L (true_host F h) (true_out F h)]
      else [/\ \rank (Rall L (true_host F h) (true_out F h)) = columns, rank = Z.of_nat columns &
        carries_all (d_in s) L (true_host F h) (true_out F h)]
  | UniversalTied h rank => stream s /\ rank = Z.of_nat (res_tied_dimension H L d (d_out s)) /\
      forall (F : numFieldType) D (WE : 'M[F]_(d_in s, D)) WQ WK WV WO (WU : 'M[F]_(D, d_out s)), exists E : 'M_(d_in
        s, m),
        E *m res_Rall L (true_host F h) (true_out F h) = WE *m res_Rall L (layers (Decision.looped WQ WK WV WO)) WU
  | Serves h rank => d_in s = d_out s /\ rank = Z.of_nat (serving_dimension s) /\
      forall (F : numFieldType) (T : transformer F H d (d_out s)), exists E : 'M_(d_out s, m),
        matches_logits L (true_host F h) (true_out F h) (layers T) E
  | Refuted h => forall F : numFieldType, if stream s
      then ~ res_carries_all (d_in s) L (true_host F h) (true_out F h)
      else exists D (WE : 'M[F]_(d_in s, D)) (T : transformer F H d D) (WU : 'M[F]_(D, d_out s)),
        entries01 T /\ forall E : 'M[F]_(d_in s, m), E *m Rall L (true_host F h) (true_out F h) <>
          wide_Wall L WE (layers T) WU
  | NoneMatches tied => forall (F : numFieldType) m' (S : nat -> layer F H d m') (U : 'M[F]_(m', d_out s)), (m' <= m)%N ->
      if stream s then ~ res_carries_all (d_in s) L (if tied then fun=> S 0%N else S) U else ~ carries_all (d_in s) L S U
  | NoneMatchesTied => d_in s = d_out s /\ forall (F : numFieldType) m' (S : nat -> layer F H d m') (U : 'M[F]_(m',
    d_in s)), (m' <= m)%N -> ~ universal_for_tied L S U
  | NoneServes => d_in s = d_out s /\ forall (F : numFieldType) m' (S : nat -> layer F H d m') (U : 'M[F]_(m', d_in s)),
    (m' <= m)%N -> ~ universal_by_logits L S U
  | NoneShares true => d_in s = d_out s /\ forall (F : numFieldType) m' (V : nat -> 'I_H -> 'M[F]_m'),
    (m' <= m)%N ->
      ~ forall T : transformer F H d (d_in s), exists (E : 'M_(d_in s, m')) (U : 'M_(m', d_in s)),
          shared_emulates L V (values (layers T)) E U (@row_stochastic F)
  | NoneShares false => d_in s = d_out s /\ forall (F : numFieldType) m' (V : nat -> 'I_H -> 'M[F]_m') (U
    : 'M[F]_(m', d_in s)), (m' <= m)%N ->
      ~ forall T : transformer F H d (d_in s), exists E : 'M_(d_in s, m'), shared_emulates L V (values
        (layers T)) E U (@row_stochastic F)
  | NoneSharesTied both => [/\ d_in s = 1%N, d_out s = 1%N & forall (F : numFieldType) m' (V : nat -> 'I_H -> 'M[F]_m')
      (U : 'M[F]_(m', 1)), (m' <= m)%N ->
      ~ forall T : transformer F H d 1, looped T -> exists (E : 'M_(1, m')) (U' : 'M_(m', 1)),
        (both \/ U' = U) /\ shared_emulates L V (values (layers T)) E U' (@row_stochastic F)]
  | NullVector tied V => d_in s = d_out s /\ forall F : numFieldType,
      ~ forall T : transformer F H d (d_in s), exists (E : 'M_(d_in s, m)) (U : 'M_(m, d_in s)),
        shared_emulates L (value_host F tied V) (values (layers T)) E U (@row_stochastic F)
  end.

(* --- what is executed --- *)
(* Selection: the column of a row that has a one in it and in no other of the chosen ones (hosts of zeros and *)
(* ones); Kernel: a vector; Against: one, and a tied target (Kernel.v); Null: coefficients of the words of length L, and a word with one that is not zero *)
Inductive hint := Selection (inv : seq code) | Kernel (t : tree Z) | Dimension | Null (ys : vec Z) (w : seq nat)
  | Embedding (E U : seq block) | Against (z : vec Z) (target : vec Z).
Definition factor_ok (h : named) : bool := nzZ (factor h).1 && nzZ (factor h).2.
Definition positive : bool := [&& 0 < d, 0 < d_in s & 0 < d_out s]%N.
Notation letters := (heads_and_stream (stream s) H).
Definition kernel_trees (zs : seq (vec Z)) : seq (tree Z) := [seq plant letters d (d_out s) L 0 z | z <- zs].
Definition kernel_of (h : named) (zs : seq (vec Z)) : bool :=
  in_kernel (stream s) H d (d_out s) L m (heads_of h) (out_of h) (kernel_trees zs).
Definition at_target (zs : seq (vec Z)) (vs : vec Z) : bool := vanishes_at (stream s) H d (d_out s) L (kernel_trees zs) vs.
Definition certain (c : claim) (e : hint) : bool := positive && match c, e with
  | Universal (Built b) rank, Selection inv => Z.eqb rank (Z.of_nat columns) &&
      (if stream s then if b is Tied then (L == 1%N) && reduced (ones_of b) H d (d_out s) m L inv
         else triangular (ones_of b) H d (d_out s) m L inv
       else permuted (ones_of b) H d (d_out s) m L inv)
  | UniversalTied (Built Tied) rank, Selection inv => [&& stream s, Z.eqb rank (Z.of_nat (res_tied_dimension H L d
      (d_out s))) & reduced (ones_of Tied) H d (d_out s) m L inv]
  | Refuted h, Kernel t => factor_ok h && refutes Z0 Z.add Z.mul id nzZ letters d (d_out s) m (live (stream s))
      (letter_heads (stream s) m (heads_of h)) (out_of h) L t
  | RefutedTied h, Against z vs => [&& d_in s == d_out s, factor_ok h, kernel_of h [:: z], Z.eqb (nth Z0 vs 0) (factor h).2
      & ~~ at_target [:: z] vs]
  | Refuted _, Dimension => (m < columns)%N
  | NoneMatches tied, Dimension => (m < columns)%N || [&& tied, stream s, 0 < H & 1 < L]%N
  | NoneMatchesTied, Dimension => [&& d_in s == d_out s, L <= d, L <= d_in s & m < matching_dimension H L d (d_in s)]%N
  | NoneServes, Dimension => [&& d_in s == d_out s, 2 * d <= d_in s, (1 < H) || (L <= 1)
      & m < matching_dimension H L d (d_in s)]%N
  | NoneShares true, Dimension => (d_in s == d_out s) && (m ^ 2 < H ^ L)%N
  | NoneShares false, Dimension => (d_in s == d_out s) && (m < d_in s * H ^ L)%N
  | NoneSharesTied both, Dimension => [&& d_in s == 1, d_out s == 1, 0 < H &
      (if both then m ^ 2 else m) < choose (L + H.-1) H.-1]%N
  | Embeds c inverses, Embedding E U => (d_in s == d_out s) && let o := embedded_ones c in
      match sense_of c with
      | Logits => serves_logits H d (d_in s) m L o (tied_targets c) (inverted c inverses) E
      | FreeE => outputs H d (d_in s) m L o (tied_targets c) (inverted c inverses) E
      | FreeBoth => serves_both H d (d_in s) m L o (tied_targets c) (inverted c inverses) E U end
  | NullVector tied V, Null ys w => (d_in s == d_out s) && vanishes H m
      (fun l h => nth [::] (nth [::] V (if tied then 0%N else l)) h) L ys w
  | _, _ => false end.
(* before the vectors are drawn: k of them, modulo p; the columns that are tested stand in the mask *)
Definition enough (p : Z) (k : nat) : bool := primeb p && Z.leb (Z.pow 2 100) (Z.pow p (Z.of_nat k)).
Definition probable (c : claim) (p : Z) (k : nat) (mask : seq bool) : bool := positive && match c with
  | Universal h rank => [&& Z.eqb rank (Z.of_nat columns), factor_ok h, enough p k & count id mask == columns]
  | Serves h rank => [&& d_in s == d_out s, (d_in s <= d)%N, ~~ stream s, Z.eqb rank (Z.of_nat (serving_dimension s)),
      factor_ok h, enough p k & count id mask == serving_dimension s]
  | _ => false end.
Definition passed (c : claim) (p : Z) (mask : seq bool) (C : nat -> nat -> mat Z) (B : mat Z) (J : seq nat)
  (xs : seq (vec Z)) : bool := match c with
  | Universal h _ => passes letters d (d_out s) m (letter_heads (stream s) m (heads_of h)) (out_of h) L p mask B J xs
  | Serves h _ => passes H d (d_out s) m (tested d (d_out s) C (heads_of h)) (out_of h) L p mask B J xs
  | _ => false end.

(* the same for all tied targets, with a basis of the kernel and a tied target of random numbers below 2^128 *)
Definition probable_kernel (c : claim) (p : Z) (k : nat) (mask : seq bool) (ps : seq nat) (zs : seq (vec Z)) : bool :=
  positive && match c with
  | Matched h rank => [&& d_in s == d_out s, Z.eqb rank (Z.of_nat (columns - size zs)), factor_ok h,
      enough p k && Z.leb (Z.of_nat (2 * L).+1) (Z.pow 2 28), (columns <= count id mask + size zs)%N,
      independent (stream s) H d (d_out s) L ps zs & kernel_of h zs]
  | _ => false end.
Definition passed_kernel (c : claim) (p : Z) (mask : seq bool) (B : mat Z) (J : seq nat) (zs xs : seq (vec Z)) (vs : vec Z) : bool :=
  match c with
  | Matched h _ => passes letters d (d_out s) m (letter_heads (stream s) m (heads_of h)) (out_of h) L p mask B J xs
      && at_target zs vs
  | _ => false end.

(* --- soundness --- *)
Lemma unit_neq0 (F : numFieldType) h : factor_ok h -> unit F h != 0.
Proof. by rewrite /factor_ok !(inject_nz F) => /andP[a b]; rewrite mulf_neq0 ?invr_eq0. Qed.

(* the integer host with a silent head *)
Definition sounding (F : numFieldType) h := host Z0 (inject F) H.+1 d m (silent_heads m (heads_of h)).
Definition by_letter (F : numFieldType) h (a : 'I_H.+1) : F := if letter_of a is Some _ then unit F h else 1.
Lemma soundingE (F : numFieldType) h :
  Rall L (silent (true_host F h)) (true_out F h) = Rall L (scaled (unit F h) (by_letter F h) (sounding F h)) (true_out F h).
Proof.
apply: eq_Rall => l a; rewrite /= /by_letter /letter_of; case: unliftP => [b ->|->] /=.
  by split.
have e n : mof Z0 (inject F) m n [::] = 0 by apply/matrixP => i j; rewrite !mxE !nth_nil.
split; rewrite ?e ?scaler0 // scale1r; apply/matrixP => i j.
by rewrite !mxE (nth_map 0%N) ?size_iota // (nth_map 0%N) ?size_iota // !nth_iota //= addn0 inject_nat eq_sym.
Qed.
Lemma by_letter_neq0 (F : numFieldType) h a : factor_ok h -> by_letter F h a != 0.
Proof. by move=> ok; rewrite /by_letter; case: (letter_of a) => [_|]; rewrite ?oner_neq0 ?unit_neq0. Qed.

Lemma rank_true (F : numFieldType) h n : factor_ok h ->
  (n <= \rank (Rall L (host Z0 (inject F) letters d m (letter_heads (stream s) m (heads_of h))) (out Z0 (inject F) (d_out s) m
    (out_of h))))%N ->
  (n <= (if stream s then \rank (res_Rall L (true_host F h) (true_out F h))
         else \rank (Rall L (true_host F h) (true_out F h))))%N.
Proof.
move=> ok; have u0 := unit_neq0 F ok; rewrite /letter_heads; case: (stream s) => n_rank; last by rewrite rank_scaled.
apply: leq_trans (rank_silent _ _ _); rewrite soundingE rank_scaled // => a; exact: by_letter_neq0.
Qed.

Lemma universal_statement h rank : positive -> Z.eqb rank (Z.of_nat columns) -> (forall F : numFieldType,
  (columns <= (if stream s then \rank (res_Rall L (true_host F h) (true_out F h))
               else \rank (Rall L (true_host F h) (true_out F h))))%N) -> statement (Universal h rank).
Proof.
move=> /and3P[d0 din0 dout0] /Z.eqb_spec e full F; move: (full F) e; rewrite /columns; case: (stream s) => n_rank e.
  have r : \rank (res_Rall L (true_host F h) (true_out F h)) = res_matching_dimension H L d (d_out s).
    by apply/eqP; rewrite eqn_leq n_rank andbT -card_res_column rank_leq_col.
  by split=> //; have [_ w] := @res_wide_decision F H d (d_in s) (d_out s) L m (true_host F h) (true_out F h) d0 din0 dout0; exact: w.
have r : \rank (Rall L (true_host F h) (true_out F h)) = matching_dimension H L d (d_out s).
  by apply/eqP; rewrite eqn_leq n_rank andbT -card_column rank_leq_col.
by split=> //; have [_ w] := @wide_decision F H d (d_in s) (d_out s) L m (true_host F h) (true_out F h) d0 din0 dout0; exact: w.
Qed.

Lemma low_rank (F : fieldType) m' n (A : 'M[F]_(m', n)) k : (m' < k)%N -> \rank A <> k.
Proof. by move=> m'k e; have := rank_leq_row A; rewrite e leqNgt m'k. Qed.

(* hosts of zeros and ones are the integers themselves *)
Lemma built_true (F : numFieldType) b l a :
  [/\ lQ (true_host F (Built b) l) a = lQ (integer_host F (Built b) l) a,
      lK (true_host F (Built b) l) a = lK (integer_host F (Built b) l) a &
      lV (true_host F (Built b) l) a = lV (integer_host F (Built b) l) a].
Proof. by rewrite /= /unit /= invr1 mulr1 !scale1r. Qed.
Lemma built_out (F : numFieldType) b : true_out F (Built b) = integer_out F (Built b).
Proof. by rewrite /true_out /unit /= invr1 mulr1 scale1r. Qed.

(* E R = W are the matching equations for tied targets; P takes the columns to those of words over all letters *)
Lemma own_columns (F : numFieldType) h : exists c (P : 'M[F]_(c, #|column letters d (d_out s) L|)) (R : 'M[F]_(m, c)),
  [/\ c = columns, \rank R = rank_of F h, R *m P = Rall L (voiced (stream s) (true_host F h)) (true_out F h),
      (forall x, counted (live (stream s)) x -> exists y, forall z : 'cV[F]_#|column letters d (d_out s) L|, (P *m z) y 0 = z (enum_rank x) 0)
    & (forall Q K V O, exists W, W *m P = Rall L (voiced (stream s) (layers (Decision.looped Q K V O))) 1%:M /\
        forall E, E *m R = W <-> if stream s
          then res_matches L (true_host F h) (true_out F h) (layers (Decision.looped Q K V O)) E
          else matches L (true_host F h) (true_out F h) (layers (Decision.looped Q K V O)) E)].
Proof.
rewrite /rank_of /columns; case: (stream s).
  exists #|res_column H d (d_out s) L|, (placed F H d (d_out s) L), (res_Rall L (true_host F h) (true_out F h)).
  split=> [||||Q K V O]; rewrite ?card_res_column // -?RallE //.
    move=> x cx; have : down x by move: cx; case: (x) => [[w j]|[w j]] //=; rewrite /letter_of; case: unliftP => [a ->|->].
    by case e: (down x) => [y|] // _; exists (enum_rank y) => z; exact: placed_entry.
  exists (res_Wall L (layers (Decision.looped Q K V O))); split=> [|E]; last by rewrite -res_matchesP.
  rewrite /voiced RallE; congr (_ *m _); apply: eq_res_pack => // w; exact/esym/mulmx1.
exists #|column H d (d_out s) L|, 1%:M, (Rall L (true_host F h) (true_out F h)).
split=> [||||Q K V O]; rewrite ?card_column ?mulmx1 //.
  by move=> x _; exists (enum_rank x) => z; rewrite mul1mx.
exists (Wall L (layers (Decision.looped Q K V O))); split=> [|E]; last by rewrite -matchesP.
by rewrite mulmx1; apply: eq_pack => // w; exact/esym/mulmx1.
Qed.
Lemma refuted_tied h z vs : [&& d_in s == d_out s, factor_ok h, kernel_of h [:: z], Z.eqb (nth Z0 vs 0) (factor h).2
  & ~~ at_target [:: z] vs] -> statement (RefutedTied h).
Proof.
case/and5P => /eqP sq ok ker /Z.eqb_spec y no; split=> // F all_tied.
have [c [P [R [_ _ RP _ own]]]] := own_columns F h.
have [Q [K [V [O no_E]]]] := refuted_sound (unit_neq0 F ok) RP ker (erefl (unit F h)) y no.
have [W [WP eqs]] := own Q K V O; move: all_tied eqs; rewrite /matches_tied /universal_for_tied.
by case: (stream s) => /(_ Q K V O)[E EP] /(_ E)[_ /(_ EP)]; exact: no_E.
Qed.

Lemma triangular_full (F : numFieldType) b inv : triangular (ones_of b) H d (d_out s) m L inv ->
  (res_matching_dimension H L d (d_out s) <= \rank (res_Rall L (true_host F (Built b)) (true_out F (Built b))))%N.
Proof.
move=> ok; rewrite built_out (eq_res_Rall _ _ (built_true F b)) -card_res_column.
have : row_full (res_Rall L (integer_host F (Built b)) (integer_out F (Built b))).
  rewrite -cokermx_eq0; apply/eqP/matrixP => i j; rewrite [RHS]mxE.
  have := triangular_rank ok (y := col j (cokermx (res_Rall L (integer_host F (Built b)) (integer_out F (Built b))))).
  by rewrite {1}colE mulmxA mulmx_coker mul0mx => /(_ erefl)/matrixP/(_ i 0); rewrite !mxE.
by move/eqP => ->.
Qed.
(* at one layer every target is tied *)
Lemma one_layer (R : ringType) G k n dout (S : nat -> layer R G k n) (U : 'M_(n, dout)) : L = 1%N ->
  res_Rall L S U = res_Rall L (fun=> S 0%N) U.
Proof.
move=> e; have short (w : seq (option 'I_G)) : (size w <= 1)%N -> res_wprod (values S) 0 w = res_wprod (values (fun=> S 0%N)) 0 w.
  by case: w => [|a [|b w]].
have first l : (l < L)%N -> l = 0%N by rewrite e ltnS leqn0 => /eqP.
apply: eq_res_pack => [l w h /first l0|l w h /first l0|w]; last by rewrite short // size_tuple e.
  by subst l; rewrite short // size_tuple.
by subst l; rewrite short // size_tuple.
Qed.
Lemma one_layer_full (F : numFieldType) inv : positive -> L = 1%N -> reduced (ones_of Tied) H d (d_out s) m L inv ->
  (res_matching_dimension H L d (d_out s) <= \rank (res_Rall L (true_host F (Built Tied)) (true_out F (Built Tied))))%N.
Proof.
move=> /and3P[d0 din0 dout0] e ok; have [full _] := @res_wide_decision F H d (d_in s) (d_out s) L m
  (true_host F (Built Tied)) (true_out F (Built Tied)) d0 din0 dout0.
rewrite full // => D WE T WU; rewrite (one_layer (layers T)) // built_out (eq_res_Rall _ _ (built_true F Tied)).
pose o := ones_of Tied.
exact: (@reduced_serves (oQ o 0) (oK o 0) (oV o 0) (oU o) H d (d_out s) m L F inv (d_in s) D WE (layers T 0%N) WU ok).
Qed.
Theorem certain_sound c e : certain c e -> statement c.
Proof.
case/andP => pos; have /and3P[d0 din0 dout0] := pos.
case: c => [[t y f seed|b|t w] rank|[t y f seed|b|t w] rank|h rank|h rank|h|h|th|||both|both|c inverses|t V];
  case: e => [inv|t'||ys v|bs cs|z vs] //; rewrite ?andbF //; try (by case: b); try (by case: both).
- case/andP => e ok; apply: universal_statement => // F; rewrite /columns; move: ok; case: (stream s) => ok.
    by case: b ok => [||/andP[/eqP e1]||||||] ok; [| |exact: (one_layer_full F pos e1 ok)| | | | | |]; exact: triangular_full ok.
  rewrite built_out (eq_Rall _ _ (built_true F b)) -card_column.
  have [B BR] := permuted_left_inverse F ok.
  by have := mxrankM_maxr B (Rall L (integer_host F (Built b)) (integer_out F (Built b))); rewrite BR mxrank1.
- case: b => // /and3P[r /Z.eqb_spec e ok]; split=> //; split=> // F D WE WQ WK WV WO WU.
  rewrite built_out (eq_res_Rall _ _ (built_true F Tied)).
  pose o := ones_of Tied; pose lay := Layer WQ WK (fun h => WV h *m WO h).
  exact: (@reduced_serves (oQ o 0) (oK o 0) (oV o 0) (oU o) H d (d_out s) m L F inv (d_in s) D WE lay WU ok).
- case/andP => u ok F; move: ok; rewrite /letter_heads /live /=; have u0 := unit_neq0 F u.
  case: (stream s) => ok /=.
    have [z [c [Rz cc zc]]] := @refutes_kernel _ Z0 Z.add Z.mul id nzZ F (inject F) (inject0 F) (@injectD F)
      (@injectM F) (fun=> erefl) (inject_nz F) _ _ _ _ _ _ _ _ _ ok.
    have [z' [Rz' zc']] := kernel_scaled u0 (fun a => by_letter_neq0 F a u) Rz zc.
    rewrite -soundingE in Rz'.
    have dc : down c by move: cc; case: (c) => [[w j]|[w j]] //=; rewrite /letter_of; case: unliftP => [a ->|->].
    have [x [Rx /negP x0]] := res_kernel Rz' zc' dc.
    case/(@res_wide_decision _ _ _ _ _ _ _ _ _ d0 din0 dout0) => full; apply: x0.
    have /row_fullP[B BR] : row_full (res_Rall L (true_host F h) (true_out F h)) by rewrite /row_full full card_res_column.
    by rewrite -[x]mul1mx -BR -mulmxA Rx mulmx0.
  have [z [c [Rz _ zc]]] := @refutes_kernel _ Z0 Z.add Z.mul id nzZ F (inject F) (inject0 F) (@injectD F)
    (@injectM F) (fun=> erefl) (inject_nz F) _ _ _ _ _ _ _ _ _ ok.
  have [z' [Rz' zc']] := kernel_scaled u0 (fun=> u0) Rz zc.
  exact: (wide_refutation d0 din0 dout0 Rz' zc').
- rewrite /columns => mM F /=; move: mM; case: (stream s) => mM.
    by case/(@res_wide_decision _ _ _ _ _ _ _ _ _ d0 din0 dout0)/(low_rank mM).
  case: (universal_or_refuted L (true_host F h) (true_out F h) d0 dout0) => [/(decision_theorem _ _ _ d0
    dout0)/(low_rank mM)//|].
  by case=> c [z [Rz zc _]]; apply: (wide_refutation d0 din0 dout0 Rz zc).
- exact: refuted_tied.
- rewrite /columns => /orP[mM|/and4P[-> r H0 L2]] F m' S U m'm /=; last first.
    by rewrite r => /(@res_wide_decision _ _ _ _ _ _ _ _ _ d0 din0 dout0); apply: res_tied_rank.
  move: mM; case: (stream s) => mM.
    by case/(@res_wide_decision _ _ _ _ _ _ _ _ _ d0 din0 dout0)/(low_rank (leq_ltn_trans m'm mM)).
  by case/(@wide_decision _ _ _ _ _ _ _ _ _ d0 din0 dout0)/(low_rank (leq_ltn_trans m'm mM)).
- case/and4P => /eqP e Ld Ldin mM; split=> // F m' S U m'm /(tied_targets_lower_bound din0 Ld Ldin).
  by rewrite leqNgt (leq_ltn_trans m'm mM).
- case/and4P => /eqP e narrow several mM; split=> // F m' S U m'm univ.
  have leM : (matching_dimension H L d (d_in s) <= m')%N by apply: narrow_lower_bound univ.
  by have := leq_ltn_trans (leq_trans leM m'm) mM; rewrite ltnn.
- case: both => //= /andP[/eqP e mL]; split=> // F m' V.
    move=> m'm univ; have := shared_lower_bound d0 din0 univ.
    by rewrite leqNgt (leq_ltn_trans _ mL) // leq_exp2r.
  move=> U m'm univ; have := shared_fixed_unembedding_bound d0 univ.
  by rewrite leqNgt (leq_ltn_trans m'm mL).
- case/and4P => /eqP e1 /eqP e2 H0; rewrite chooseE => mC; split=> // F m' V U m'm; apply: none_shares_tied => //.
  by apply: leq_ltn_trans mC; case: (both); rewrite ?leq_exp2r.
- case/andP => /eqP e ok; split=> // F T loop inv; rewrite /=; move: ok; case: (sense_of c) => ok.
  + by exists (embedding m T bs); exact: logits_ok ok.
  + by exists (embedding m T bs); apply/spanning_lemma_stochastic; exact: outputs_ok ok.
  by exists (embedding m T bs), (unembedding m T cs); apply/spanning_lemma_stochastic; exact: both_ok ok.
- by case/andP => /eqP e ok; split=> // F; apply: vanishes_sound ok.
Qed.

Lemma enoughP p k : enough p k -> primeb p /\ (Z.to_nat (Z.pow 2 100) <= Z.to_nat p ^ k)%N.
Proof.
case/andP => pp /Z.leb_le pk; split; first exact: pp. have [p1 _] := primebP pp; apply/leP.
have -> : (Z.to_nat p ^ k)%N = Z.to_nat (Z.pow p (Z.of_nat k)).
  apply: Nat2Z.inj; rewrite Z2Nat.id; last by apply: Z.pow_nonneg; lia.
  elim: (k) => [|j IH]; first by rewrite expn0.
  by rewrite expnS -multE Nat2Z.inj_mul IH Nat2Z.inj_succ Z.pow_succ_r ?Z2Nat.id //; lia.
by apply: (proj1 (Z2Nat.inj_le _ _ _ _) pk); [exact: Z.pow_nonneg | apply: Z.pow_nonneg; lia].
Qed.
Lemma deep_enough n : Z.leb (Z.of_nat n) (Z.pow 2 28) -> (Z.to_nat (Z.pow 2 100) * n <= Z.to_nat (Z.pow 2 128))%N.
Proof.
have scale a b : Z.le 0 a -> Z.le (Z.mul a (Z.of_nat n)) b -> (Z.to_nat a * n <= Z.to_nat b)%N.
  by move=> a0 ab; apply/leP; rewrite -multE; nia.
by move/Z.leb_le => small; apply: scale; lia.
Qed.
Theorem probable_sound c p k mask C B J : probable c p k mask -> statement c \/
  (#|[set xs : {ffun 'I_k -> 'cV['F_(Z.to_nat p)]_(count id mask)} | passed c p mask C B J [seq draw (xs i) | i <- enum
    'I_k]]| * Z.to_nat (Z.pow 2 100) <= #|{ffun 'I_k -> 'cV['F_(Z.to_nat p)]_(count id mask)}|)%N.
Proof.
case/andP => pos; have /and3P[d0 din0 dout0] := pos.
have many := @enoughP p k.
move: (Z.to_nat (Z.pow 2 100)) many => N many; case: c => // [h rank /and4P[e u /many[pp few] /eqP n]|h rank].
  have [full|rare] := @witness_sound letters d (d_out s) m (letter_heads (stream s) m (heads_of h)) (out_of h) L p mask B J pp k.
    by left; apply: universal_statement => // F; apply: rank_true => //; rewrite -n.
  by right; apply: leq_trans rare; rewrite leq_mul2l few orbT.
case/and5P => /eqP sq narrow r /Z.eqb_spec e /and3P[u /many[pp few] /eqP n].
have [full|rare] := @witness_sound H d (d_out s) m (tested d (d_out s) C (heads_of h)) (out_of h) L p mask B J pp k.
  left; split=> //; split=> // F T; have u0 := unit_neq0 F u.
  apply: (@linear_test_rank H d (d_out s) m L F (true_host F h) (true_out F h) (gauges d (d_out s) C F)) => //.
  apply/eqP; rewrite eqn_leq rank_leq_col /=.
  apply: leq_trans (tested_rank d (d_out s) m C (heads_of h) (out_of h) L _ _); rewrite rank_scaled //.
  apply: leq_trans (full F); rewrite n /serving_dimension sq !card_sum !card_prod card_word card_tuple !card_ord.
  by rewrite -mulnDr (addnC (d_out s)) mulnC [(H ^ L * _)%N]mulnC.
by right; apply: leq_trans rare; rewrite leq_mul2l few orbT.
Qed.

Lemma either_rare (X V : finType) (A : pred X) (B : pred V) N : (#|A| * N <= #|X| \/ #|B| * N <= #|V| ->
  #|[set xv : X * V | A xv.1 && B xv.2]| * N <= #|[finType of X * V]|)%N.
Proof.
move=> rare; have -> : #|[set xv : X * V | A xv.1 && B xv.2]| = (#|A| * #|B|)%N.
  by rewrite -(cardsE A) -(cardsE B) -cardsX; apply: eq_card => xv; rewrite !inE.
by rewrite card_prod; case: rare => rare; [rewrite mulnAC | rewrite -mulnA]; rewrite leq_mul ?max_card.
Qed.
Theorem probable_kernel_sound c p k mask B J ps zs : probable_kernel c p k mask ps zs -> statement c \/
  (#|[set xv : {ffun 'I_k -> 'cV['F_(Z.to_nat p)]_(count id mask)} * {ffun 'I_(numbers H d (d_out s)).+1 -> 'I_(Z.to_nat (Z.pow 2 128))}
      | passed_kernel c p mask B J zs [seq draw (xv.1 i) | i <- enum 'I_k] (point_of xv.2)]| * Z.to_nat (Z.pow 2 100)
    <= #|[finType of {ffun 'I_k -> 'cV['F_(Z.to_nat p)]_(count id mask)} * {ffun 'I_(numbers H d (d_out s)).+1 -> 'I_(Z.to_nat (Z.pow 2 128))}]|)%N.
Proof.
have many := @enoughP p k; have large := @deep_enough (2 * L).+1.
move: (Z.to_nat (Z.pow 2 100)) (Z.to_nat (Z.pow 2 128)) many large => N s128 many large.
case/andP => pos; case: c => // h rank /and5P[/eqP sq /Z.eqb_spec e ok /andP[/many[pp few] /large deep] /and3P[big ind ker]].
pose A : pred {ffun 'I_k -> 'cV['F_(Z.to_nat p)]_(count id mask)} := fun xs =>
  passes letters d (d_out s) m (letter_heads (stream s) m (heads_of h)) (out_of h) L p mask B J [seq draw (xs i) | i <- enum 'I_k].
pose A' : pred {ffun 'I_(numbers H d (d_out s)).+1 -> 'I_s128} := fun vs => at_target zs (point_of vs).
have [full|rare] := @witness_sound letters d (d_out s) m (letter_heads (stream s) m (heads_of h)) (out_of h) L p mask B J pp k; last first.
  right; apply: (@either_rare _ _ A A' N); left; rewrite -cardsE; apply: leq_trans rare; by rewrite leq_mul2l few orbT.
have [zero|rare] := @target_sound (stream s) H d (d_out s) L (kernel_trees zs) s128; last first.
  right; apply: (@either_rare _ _ A A' N); right; rewrite -cardsE -(@leq_pmul2r (2 * L).+1) // -mulnA.
  apply: leq_trans (leq_mul (leqnn _) deep) _.
  by rewrite [X in (_ <= X)%N]mulnC; move: rare; rewrite card_ffun !card_ord.
left; split=> // F; have [c [P [R [ec er RP to_own own]]]] := own_columns F h.
have [|rk all_W] := kernel_matches (unit_neq0 F ok) RP ker to_own ind.
  by rewrite er ec; apply: leq_trans big _; rewrite leq_add2r; apply: rank_true.
split; first by rewrite e -er rk ec.
suff solved Q K V O : exists E, if stream s then res_matches L (true_host F h) (true_out F h) (layers (Decision.looped Q K V O)) E
    else matches L (true_host F h) (true_out F h) (layers (Decision.looped Q K V O)) E.
  by rewrite /matches_tied /universal_for_tied; case: (stream s) solved.
have [W [WP eqs]] := own Q K V O; have [|E ER] := all_W W Q K V O WP; first exact: zero.
by exists E; apply/eqs.
Qed.
End Meaning.
