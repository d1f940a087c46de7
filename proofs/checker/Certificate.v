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
  Spanning.
From UtfproofChecker Require Import Layers Integers Witness Hosts.
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
Record shape := Shape { heads : nat; depth : nat; head_dim : nat; d_in : nat; d_out : nat; width : nat }.
Inductive construction := Sparse | Tied.
Inductive named := Random (tied : bool) (f : law) (seed : Z) | Built (c : construction).
Inductive claim :=
  | Universal (h : named) (rank : Z)      (* by matching, all untied targets *)
  | Refuted (h : named)
  | NoneMatches                           (* lower bounds: no host of this dimension or less; by matching *)
  | NoneShares (both : bool).             (* by shared attention, E free or E and U free *)

Fixpoint same (l l' : seq string) : bool := match l, l' with
  | [::], [::] => true | s :: l, s' :: l' => String.eqb s s' && same l l' | _, _ => false end.
Definition fields (ks : seq string) (j : json) : option (seq json) :=
  if j is Obj l then if same (map fst l) ks then Some (map snd l) else None else None.
Definition says (s : string) (j : json) : bool := if j is Str s' then String.eqb s s' else false.
Definition small (j : json) : option nat :=
  if j is Num z then if Z.leb 1 z && Z.leb z 1000000 then Some (Z.to_nat z) else None else None.
Definition read_shape (j : json) : option shape :=
  if fields [:: "d_in"; "d_out"; "head_dim"; "heads"; "layers"; "m"] j is Some [:: a; b; c; d; e; f] then
    match small a, small b, small c, small d, small e, small f with
    | Some a, Some b, Some c, Some d, Some e, Some f => Some (Shape d e c a b f) | _, _, _, _, _, _ =>
      None end
  else None.
Definition read_law (j : json) : option law :=
  if says "uniform" j then Some Uniform else if says "signs" j then Some Signs
  else if says "binomial" j then Some Binomial else None.
Definition read_host (j : json) : option named :=
  if fields [:: "construction"] j is Some [:: c] then
    if says "sparse" c then Some (Built Sparse) else if says "tied" c then Some (Built Tied) else None
  else if fields [:: "construction"; "dtype"; "law"; "seed"] j is Some [:: c; t; f; Num seed] then
    if says "float64" t && Z.leb 0 seed && Z.ltb seed 18446744073709551616 then
      match says "random" c, says "random-tied" c, read_law f with
      | true, _, Some f => Some (Random false f seed) | _, true, Some f => Some (Random true f seed) | _,
        _, _ => None end
    else None
  else None.
Definition every (j : json) : bool :=
  if fields [:: "every"] j is Some [:: e] then says "host" e || says "tied host" e else false.
Definition read_claim (kind j : json) : option claim :=
  if says "rank-permutation" kind || says "rank-modular" kind then
    if fields [:: "host"; "notion"; "rank"; "targets"; "verdict"] j is Some [:: h; n; Num r; t; v] then
      if says "matching" n && says "all untied" t && says "universal" v then
        if read_host h is Some h then
          if (if h is Built _ then says "rank-permutation" kind else says "rank-modular" kind) then Some
            (Universal h r) else None
        else None
      else None
    else None
  else if says "rank-deficient" kind then
    if fields [:: "host"; "notion"; "targets"; "verdict"] j is Some [:: h; n; t; v] then
      if says "matching" n && says "all untied" t && says "not universal" v then
        if read_host h is Some h then Some (Refuted h) else None
      else None
    else None
  else if says "lower-bound" kind then
    match fields [:: "host"; "notion"; "targets"; "verdict"] j, fields [:: "free"; "host"; "notion";
      "targets"; "verdict"] j with
    | Some [:: h; n; t; v], _ => if [&& every h, says "matching" n, says "all untied" t & says "not
      universal" v] then Some NoneMatches else None
    | _, Some [:: f; h; n; t; v] => if [&& every h, says "shared attention" n, says "all untied" t & says
      "not universal" v] then
        if says "E and U" f then Some (NoneShares true) else if says "E" f then Some (NoneShares false)
          else None else None
    | _, _ => None end
  else None.
Definition read (file : string) (j : json) : option (shape * claim) :=
  if String.eqb file (print j) && canonical j then
    if fields [:: "claim"; "evidence"; "format"; "kind"; "shape"; "version"] j is Some [:: c; _; f; k; s;
      Num v] then
      if says "utfproof-certificate" f && Z.eqb v 1 then
        match read_shape s, read_claim k c with Some s, Some c => Some (s, c) | _, _ => None end
      else None
    else None
  else None.
Lemma read_file file j x : read file j = Some x -> file = print j.
Proof. by rewrite /read; case: String.eqb_spec. Qed.
Local Close Scope string_scope.
Local Open Scope ring_scope.

(* --- what it means --- *)
Section Meaning.
Variable s : shape.
Notation H := (heads s). Notation L := (depth s). Notation d := (head_dim s). Notation m := (width s).
Notation M := (matching_dimension H L d (d_out s)).
Definition ones_of (c : construction) : ones :=
  match c with Sparse => sparse H L d (d_out s) | Tied => tied H L d (d_out s) end.
(* the integers that stand for the entries, and the number that each is times *)
Definition heads_of (h : named) : nat -> nat -> head Z := match h with
  | Random t f seed => random_head t f seed d m | Built c => ones_head (ones_of c) d m end.
Definition out_of (h : named) : mat Z := match h with
  | Random _ f seed => random_out f seed (d_out s) m | Built c => ones_out (ones_of c) (d_out s) m end.
Definition factor (h : named) : Z * Z := match h with Random _ f _ => unit_of f m | Built _ => (Zpos xH,
  Zpos xH) end.

Section Host.
Variables (F : numFieldType) (h : named).
Definition integer_host : nat -> layer F H d m := host Z0 (inject F) H d m (heads_of h).
Definition integer_out : 'M[F]_(m, d_out s) := out Z0 (inject F) (d_out s) m (out_of h).
Definition unit : F := inject F (factor h).1 / inject F (factor h).2.
Definition true_host : nat -> layer F H d m := scaled unit integer_host.
Definition true_out : 'M[F]_(m, d_out s) := unit *: integer_out.
End Host.

Definition statement (c : claim) : Prop := match c with
  | Universal h rank => forall F : numFieldType, [/\ \rank (Rall L (true_host F h) (true_out F h)) = M,
    rank = Z.of_nat M &
      carries_all (d_in s) L (true_host F h) (true_out F h)]
  | Refuted h => forall F : numFieldType, exists D (WE : 'M[F]_(d_in s, D)) (T : transformer F H d D) (WU
    : 'M[F]_(D, d_out s)),
      entries01 T /\ forall E : 'M[F]_(d_in s, m), E *m Rall L (true_host F h) (true_out F h) <>
        wide_Wall L WE (layers T) WU
  | NoneMatches => forall (F : numFieldType) m' (S : nat -> layer F H d m') (U : 'M[F]_(m', d_out s)),
    (m' <= m)%N ->
      ~ carries_all (d_in s) L S U
  | NoneShares true => d_in s = d_out s /\ forall (F : numFieldType) m' (V : nat -> 'I_H -> 'M[F]_m'),
    (m' <= m)%N ->
      ~ forall T : transformer F H d (d_in s), exists (E : 'M_(d_in s, m')) (U : 'M_(m', d_in s)),
          shared_emulates L V (values (layers T)) E U (@row_stochastic F)
  | NoneShares false => d_in s = d_out s /\ forall (F : numFieldType) m' (V : nat -> 'I_H -> 'M[F]_m') (U
    : 'M[F]_(m', d_in s)), (m' <= m)%N ->
      ~ forall T : transformer F H d (d_in s), exists E : 'M_(d_in s, m'), shared_emulates L V (values
        (layers T)) E U (@row_stochastic F)
  end.

(* --- what is executed --- *)
Inductive hint := Selection (inv : seq code) | Kernel (t : tree Z) | Dimension.
Definition factor_ok (h : named) : bool := nzZ (factor h).1 && nzZ (factor h).2.
Definition positive : bool := [&& 0 < d, 0 < d_in s & 0 < d_out s]%N.
Definition certain (c : claim) (e : hint) : bool := positive && match c, e with
  | Universal (Built b) rank, Selection inv => Z.eqb rank (Z.of_nat M) && permuted (ones_of b) H d (d_out
    s) m L inv
  | Refuted h, Kernel t => factor_ok h && refutes Z0 Z.add Z.mul id nzZ H d (d_out s) m (heads_of h)
    (out_of h) L t
  | Refuted _, Dimension | NoneMatches, Dimension => (m < M)%N
  | NoneShares true, Dimension => (d_in s == d_out s) && (m ^ 2 < H ^ L)%N
  | NoneShares false, Dimension => (d_in s == d_out s) && (m < d_in s * H ^ L)%N
  | _, _ => false end.
(* before the vectors are drawn: k of them, modulo p *)
Definition probable (c : claim) (p : Z) (k : nat) : bool := positive && match c with
  | Universal h rank => [&& Z.eqb rank (Z.of_nat M), factor_ok h, primeb p, room H d (d_out s) L == M &
      Z.leb (Z.pow 2 100) (Z.pow p (Z.of_nat k))]
  | _ => false end.
Definition passed (c : claim) (p : Z) (B : mat Z) (J : seq nat) (xs : seq (vec Z)) : bool := match c with
  | Universal h _ => passes H d (d_out s) m (heads_of h) (out_of h) L p B J xs
  | _ => false end.

(* --- soundness --- *)
Lemma unit_neq0 (F : numFieldType) h : factor_ok h -> unit F h != 0.
Proof. by rewrite /factor_ok !(inject_nz F) => /andP[a b]; rewrite mulf_neq0 ?invr_eq0. Qed.
Lemma factor_built b : factor_ok (Built b). Proof. by []. Qed.

Lemma universal_statement h rank : positive -> Z.eqb rank (Z.of_nat M) -> factor_ok h ->
  (forall F : numFieldType, \rank (Rall L (integer_host F h) (integer_out F h)) = M) -> statement
    (Universal h rank).
Proof.
move=> /and3P[d0 din0 dout0] /Z.eqb_spec e ok full F.
have r : \rank (Rall L (true_host F h) (true_out F h)) = M by rewrite rank_scaled ?full // unit_neq0.
split; [exact: r | exact: e |]. have [_ w] := @wide_decision F H d (d_in s) (d_out s) L m (true_host F h)
  (true_out F h) d0 din0 dout0. exact: w.
Qed.

Lemma low_rank (F : fieldType) m' (S : nat -> layer F H d m') (U : 'M[F]_(m', d_out s)) : (m' < M)%N ->
  \rank (Rall L S U) <> M.
Proof. by move=> m'M e; have := rank_leq_row (Rall L S U); rewrite e leqNgt m'M. Qed.

Lemma refuted_statement h : positive -> (forall F : numFieldType,
    exists (z : 'cV_#|column H d (d_out s) L|) c, Rall L (true_host F h) (true_out F h) *m z = 0 /\ z
      (enum_rank c) 0 != 0) ->
  statement (Refuted h).
Proof.
by move=> /and3P[d0 din0 dout0] ker F; have [z [c [Rz zc]]] := ker F; apply: (wide_refutation d0 din0
  dout0 Rz zc).
Qed.

Theorem certain_sound c e : certain c e -> statement c.
Proof.
case/andP => pos; case: c => [[t f seed|b] rank|h||both]; case: e => [inv|t'|] //.
- case/andP => e ok; apply: universal_statement => // F.
  have [B BR] := permuted_left_inverse F ok.
  have := mxrankM_maxr B (Rall L (integer_host F (Built b)) (integer_out F (Built b))).
  rewrite BR mxrank1 [X in (X <= _)%N]card_column => low.
  by apply/eqP; rewrite eqn_leq low andbT -card_column rank_leq_col.
- case/andP => u ok; apply: refuted_statement => // F.
  have [z [Rz [c zc]]] := @refutes_kernel _ Z0 Z.add Z.mul id nzZ F (inject F) (inject0 F) (@injectD F)
    (@injectM F)
    (fun=> erefl) (inject_nz F) _ _ _ _ _ _ _ _ ok.
  have u0 := unit_neq0 F u.
  pose w : 'cV_#|column H d (d_out s) L| := \col_c (z c 0 / unit F h ^+ (if enum_val c is inl (w, _) then
    (tag w).+1 else L.+1)).
  exists w, (enum_val c); split; last first.
    by rewrite enum_valK mxE mulf_neq0 // invr_eq0 expf_neq0.
  rewrite Rall_scaled -mulmxA -[RHS]Rz; congr (_ *m _); apply/colP => i.
  by rewrite mul_diag_mx !mxE mulrC divfK // expf_neq0.
- move=> mM; apply: refuted_statement => // F; have /and3P[d0 _ dout0] := pos.
  case: (universal_or_refuted L (true_host F h) (true_out F h) d0 dout0) => [/(decision_theorem _ _ _ d0
    dout0)/low_rank//|].
  by case=> c [z [Rz zc _]]; exists z, c.
- move=> mM F m' S U m'm /(proj1 (@wide_decision _ _ _ _ _ _ _ S U _ _ _)) full.
  by have /and3P[d0 din0 dout0] := pos; apply: (low_rank (leq_ltn_trans m'm mM) (full d0 din0 dout0)).
all: case: both => //= /andP[/eqP e mL]; split=> // F m' V.
  move=> m'm univ; have /and3P[d0 din0 _] := pos; have := shared_lower_bound d0 din0 univ.
  by rewrite leqNgt (leq_ltn_trans _ mL) // leq_exp2r.
move=> U m'm univ; have /and3P[d0 din0 _] := pos; have := shared_fixed_unembedding_bound d0 univ.
by rewrite leqNgt (leq_ltn_trans m'm mL).
Qed.

Theorem probable_sound c p k B J : probable c p k -> statement c \/
  (#|[set xs : {ffun 'I_k -> 'cV['F_(Z.to_nat p)]_(room H d (d_out s) L)} | passed c p B J [seq draw (xs
    i) | i <- enum 'I_k]]|
    * Z.to_nat (Z.pow 2 100) <= #|{ffun 'I_k -> 'cV['F_(Z.to_nat p)]_(room H d (d_out s) L)}|)%N.
Proof.
case/andP => pos; case: c => // h rank /and5P[e u pp /eqP fits /Z.leb_le pk].
have [full|few] := @witness_sound H d (d_out s) m (heads_of h) (out_of h) L p B J pp fits k.
  by left; apply: universal_statement.
right; apply: leq_trans few; rewrite leq_mul2l; apply/orP; right.
have [p1 _] := primebP pp; apply/leP.
have -> : (Z.to_nat p ^ k)%N = Z.to_nat (Z.pow p (Z.of_nat k)).
  apply: Nat2Z.inj; rewrite Z2Nat.id; last by apply: Z.pow_nonneg; lia.
  elim: (k) => [|j IH]; first by rewrite expn0.
  by rewrite expnS -multE Nat2Z.inj_mul IH Nat2Z.inj_succ Z.pow_succ_r ?Z2Nat.id //; lia.
by apply: (proj1 (Z2Nat.inj_le _ _ _ _) pk); [exact: Z.pow_nonneg | apply: Z.pow_nonneg; lia].
Qed.
End Meaning.
