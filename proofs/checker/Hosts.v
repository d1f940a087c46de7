(* The hosts of the certificate format, section 4, as lists of integers.                                   *)
(*                                                                                                         *)
(*   numbers, unit_of       random hosts of dtype float64: the numerators, and the unit that each is times *)
(*   sparse, tied           constructions with entries 0 and 1: the rows of the ones in each column        *)
(*   scaled                 a host times a constant; rank and kernel of R_all stay what they are           *)
(*   permuted               R_all has one 1 in each column, no two in one row                              *)
From Coq Require Import ZArith Lia.
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words MatchingSystem.
From UtfproofChecker Require Import Layers Integers.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* --- random hosts (section 4.7) --- *)
(* a number that is written within a function is built digit by digit whenever the function runs *)
Definition ones64 : Z := 0xFFFFFFFFFFFFFFFF.
Definition first_factor : Z := 0xBF58476D1CE4E5B9.
Definition second_factor : Z := 0x94D049BB133111EB.
Definition golden : Z := 0x9E3779B97F4A7C15.
Definition by1 : Z := 1. Definition by2 : Z := 2. Definition by27 : Z := 27. Definition by30 : Z := 30.
Definition by31 : Z := 31. Definition by32 : Z := 32. Definition by63 : Z := 63. Definition two32 : Z := 4294967296.
Definition word64 (z : Z) : Z := Z.land z ones64.
Definition mix (z : Z) : Z :=
  let z := word64 (Z.mul (Z.lxor z (Z.shiftr z by30)) first_factor) in
  let z := word64 (Z.mul (Z.lxor z (Z.shiftr z by27)) second_factor) in
  Z.lxor z (Z.shiftr z by31).
Definition key (seed : Z) (tensor l h : nat) : Z :=
  foldl (fun k n => mix (word64 (Z.add k (Z.mul golden (Z.of_nat n.+1))))) (mix seed) [:: tensor; l; h].
Inductive law := Uniform | Signs | Binomial.
Definition numerator (f : law) (x : Z) : Z := match f with
  | Uniform => Z.sub (Z.add (Z.mul by2 (Z.shiftr x by32)) by1) two32
  | Signs => Z.sub by1 (Z.mul by2 (Z.shiftr x by63))
  | Binomial => Z.sub (foldr Z.add Z0 [seq Z.land (Z.shiftr x (Z.of_nat i)) by1 | i <- iota 0 64]) by32 end.
Definition drawn (f : law) (seed : Z) (tensor l h rows columns : nat) : mat Z :=
  let k := key seed tensor l h in
  [seq [seq numerator f (mix (word64 (Z.add k (Z.mul golden (Z.of_nat (i * columns + j).+1))))) | j <-
    iota 0 columns]
    | i <- iota 0 rows].
(* c and e: every entry is a numerator times c 2^-e, before it is rounded (r rows) *)
Fixpoint least (n t : nat) (r : Z) : nat := if n is n'.+1 then
  if Z.leb 1048576 (Z.sqrt (Z.div (Z.pow 4 (Z.of_nat t)) r)) then t else least n' t.+1 r else t.
Definition scale_of (f : law) (r : nat) : Z * nat :=
  let t := least 200 0 (Z.of_nat r) in
  let c := Z.sqrt (Z.div (Z.pow 4 (Z.of_nat t)) (Z.of_nat r)) in
  match f with Uniform => (c, t + 32)%N | Signs => (Zpos xH, 0%N) | Binomial => (c, t + 2)%N end.
(* float64, in which the products are exact, or: bits of the significand, and the exponent of the least number *)
Inductive dtype := Float64 | Rounded (bits last : Z).
(* a 2^-e to the nearest number of the format, ties to even; again times 2^e *)
Definition rounded (bits last e a : Z) : Z :=
  let size := Z.abs a in
  let larger x y := if Z.leb x y then y else x in
  let q := larger Z0 (larger (Z.sub e last) (Z.sub (Z.add (Z.log2 size) by1) bits)) in
  if Z.eqb q Z0 then a else
  let low := Z.shiftr size q in
  let twice := Z.mul by2 (Z.sub size (Z.mul low (Z.pow by2 q))) in
  let up := Z.ltb (Z.pow by2 q) twice || (Z.eqb twice (Z.pow by2 q) && Z.eqb (Z.land low by1) by1) in
  let near := Z.mul (if up then Z.add low by1 else low) (Z.pow by2 q) in
  if Z.ltb a Z0 then Z.sub Z0 near else near.
Definition typed (t : dtype) (f : law) (r : nat) (B : mat Z) : mat Z := if t is Rounded bits last then
  let: (c, e) := scale_of f r in [seq [seq rounded bits last (Z.of_nat e) (Z.mul c x) | x <- row] | row <- B] else B.
Definition unit_of (t : dtype) (f : law) (r : nat) : Z * Z :=
  let: (c, e) := scale_of f r in (if t is Rounded _ _ then Zpos xH else c, Z.pow 2 (Z.of_nat e)).
Definition random_head (tied : bool) (t : dtype) (f : law) (seed : Z) (d m l h : nat) : head Z :=
  let l := if tied then 0%N else l in
  Head (typed t f m (drawn f seed 0 l h m d)) (typed t f m (drawn f seed 1 l h m d))
    (typed t f m (drawn f seed 2 l h m m)).
Definition random_out (t : dtype) (f : law) (seed : Z) (dout m : nat) : mat Z :=
  typed t f m (drawn f seed 3 0 0 m dout).

Local Open Scope nat_scope.
(* --- hosts of zeros and ones: the rows of the ones in a column, with multiplicity --- *)
Record ones := Ones {
  oQ : nat -> nat -> nat -> seq nat; oK : nat -> nat -> nat -> seq nat; oV : nat -> nat -> nat -> seq
    nat; oU : nat -> seq nat }.
Definition dense (rows columns : nat) (f : nat -> seq nat) : mat Z :=
  [seq [seq Z.of_nat (count_mem i (f j)) | j <- iota 0 columns] | i <- iota 0 rows].
Definition ones_head (o : ones) (d m l h : nat) : head Z :=
  Head (dense m d (oQ o l h)) (dense m d (oK o l h)) (dense m m (oV o l h)).
Definition ones_out (o : ones) (dout m : nat) : mat Z := dense m dout (oU o).

(* the letter of word number s of length t at a place, counted from 0 *)
Definition letter (H t s place : nat) : nat := (s %/ H ^ (t.-1 - place) %% H)%N.
(* where the blocks of the words of length t begin, the words shorter than that having blocks of width b *)
Definition begins (H b t : nat) : nat := (b * sumn [seq H ^ i | i <- iota 0 t])%N.
(* the block in which a coordinate lies: length of its word and the word's number *)
Fixpoint block_of (n H b L t j : nat) : nat * nat := if n is n'.+1 then
  if (j < b * H ^ t)%N then (t, j %/ b) else block_of n' H b L t.+1 (j - b * H ^ t) else (t, j).

(* section 4.1; with a residual stream the words are over one letter more, and head h is letter h+1 *)
Definition tree_place (G L b dout j : nat) : nat * nat :=
  let: (t, s) := block_of L G b L 0 j in if (t < L)%N then (t, s) else (L, s %/ dout).
Definition tree_reads (G H L d q l h i : nat) : seq nat :=
  let b := (2 * H * d)%N in [seq (begins G b l + s * b + (q * H + h) * d + i)%N | s <- iota 0 (G ^ l)].
Definition tree_leaves (G H L d dout i : nat) : seq nat :=
  [seq (begins G (2 * H * d) L + s * dout + i)%N | s <- iota 0 (G ^ L)].
Definition sparse (stream : bool) (H L d dout : nat) : ones :=
  let G := (H + stream)%N in
  Ones (tree_reads G H L d 0) (tree_reads G H L d 1)
    (fun l h j => let: (t, s) := tree_place G L (2 * H * d) dout j in
      if (l < t)%N && (s < G ^ t)%N && (letter G t s l == h + stream)%N then [:: j] else [::])
    (tree_leaves G H L d dout).

(* section 4.2 *)
Fixpoint subtree (H d dout k : nat) : nat := if k is k'.+1 then (2 * H * d + H * subtree H d dout k')%N else dout.
Definition sparse_front (H L d dout : nat) : ones :=
  Ones (fun _ h i => [:: h * d + i]%N) (fun _ h i => [:: H * d + h * d + i]%N)
    (fun l h j => let n := subtree H d dout (L - l.+1) in
      if (l < L)%N && (j < n)%N then [:: 2 * H * d + h * n + j]%N else [::])
    (fun i => [:: i]).

(* a trie of the words of length a to L with blocks of width b, then whatever: (h,w) comes to w *)
Definition trie (a H L b h j : nat) : seq nat :=
  let start t := (begins H b t - begins H b a)%N in
  let: (t, s) := block_of (L.+1 - a) H b L a j in
  if (t < L)%N then [:: start t.+1 + (h * H ^ t + s) * b + j %% b]%N else [::].
Definition trie_size (a H L b : nat) : nat := (begins H b L.+1 - begins H b a)%N.
(* (h,w_1..w_(L-1)) comes to (w_1..w_L) *)
Definition register (H L b h j : nat) : seq nat :=
  let s := (j %/ b)%N in
  if (s < H ^ L)%N then [:: (h * H ^ L.-1 + s %/ H) * b + j %% b]%N else [::].
(* what moves in front, then what moves behind it *)
Definition beside (n : nat) (f g : nat -> seq nat) (j : nat) : seq nat :=
  if (j < n)%N then f j else [seq (n + i)%N | i <- g (j - n)%N].
Definition up_to (b : nat) (f : nat -> seq nat) (i : nat) : seq nat := if (i < b)%N then f i else [::].

(* section 4.3 *)
Definition tied (stream : bool) (H L d dout : nat) : ones :=
  let b := (2 * d)%N in
  let n := trie_size 1 H L b in
  Ones (fun _ h i => [:: h * b + i]%N) (fun _ h i => [:: h * b + d + i]%N)
    (fun _ h => beside n (trie 1 H L b h) (if stream then trie 0 H L dout h else register H L dout h))
    (fun i => [:: n + i]%N).

(* section 4.4 *)
Definition shared_key (H L d din dout : nat) : ones :=
  let k := maxn din dout in
  let n := trie_size 1 H L din in
  let keys h j := let: (t, s) := block_of L H k L 0 j in
    let i := (j %% k)%N in
    if (t.+1 < L)%N then [:: begins H k t.+1 + (h * H ^ t + s) * k + i]%N
    else if (t < L)%N && (i < dout)%N then [:: begins H k L + (h * H ^ t + s) * dout + i]%N else [::] in
  Ones (fun _ h => up_to din (fun i => [:: h * din + i]%N)) (fun _ _ => up_to din (fun i => [:: n + i]%N))
    (fun _ h => beside n (trie 1 H L din h) (keys h)) (fun i => [:: n + i]%N).

(* section 4.5 *)
Definition shared_query (H L d dout : nat) : ones :=
  let n := trie_size 1 H L dout in
  Ones (fun _ _ => up_to dout (fun i => [:: n + i]%N)) (fun _ h => up_to dout (fun i => [:: h * dout + i]%N))
    (fun _ h => beside n (trie 1 H L dout h) (register H L dout h)) (fun i => [:: n + i]%N).

(* section 4.6 *)
Definition printed_single (L d dout : nat) : ones :=
  let b := maxn (2 * d) dout in
  Ones (fun l _ i => [:: l * b + i]%N) (fun l _ i => [:: l * b + d + i]%N)
    (fun _ _ j => if (j < L * b)%N then [:: j + b]%N else [::]) (fun i => [:: L * b + i]%N).
Definition printed_tree (transposed : bool) (H L d dout : nat) : ones :=
  let b := (2 * H * d)%N in
  let width t := if (t < L)%N then b else dout in
  let block t s := (begins H b t + s * width t)%N in
  Ones (tree_reads H H L d 0) (tree_reads H H L d 1)
    (fun l h j => let: (t, s) := tree_place H L b dout j in
      let i := (j - block t s)%N in
      if ~~ (s < H ^ t)%N || ~~ (l < L)%N then [::]
      else if transposed then if (t == l) && (i < width l.+1)%N then [:: block l.+1 (s * H + h) + i]%N else [::]
      else if (t == l.+1) && (s %% H == h)%N && (i < b)%N then [:: block l (s %/ H) + i]%N else [::])
    (tree_leaves H H L d dout).
Definition printed_looped (H L d dout : nat) : ones :=
  let b := maxn (2 * d) dout in
  Ones (fun _ h i => [:: b + h * b + i]%N) (fun _ h i => [:: b + h * b + d + i]%N)
    (fun _ h => trie 0 H L b h) (fun i => [:: i]).

(* section 9; no queries and keys where attention comes from outside *)
Definition unread (_ _ _ : nat) : seq nat := [::].
Definition register_alone (H L b : nat) : ones := Ones unread unread (fun _ h => register H L b h) (fun i => [:: i]).
(* two registers, of the words of the first half of the layers, rounded up, and of those of the others *)
Definition two_sided (H L b : nat) : ones := let k := uphalf L in
  Ones unread unread (fun l h j => let s := (j %/ b)%N in
    if (l < k)%N then if (s < H ^ k)%N && (s %% H == 0)%N then [:: (h * H ^ k.-1 + s %/ H) * b + j %% b]%N else [::]
    else if (s < H ^ (L - k))%N && (s %% H == h)%N then [:: s %/ H * b + j %% b]%N else [::]) (fun _ => [::]).
(* r numbers with sum at most n, lexicographically *)
Fixpoint states (r n : nat) : seq (seq nat) := if r is r'.+1 then
  flatten [seq [seq a :: c | c <- states r' (n - a)] | a <- iota 0 n.+1] else [:: [::]].
Definition count_up (cs : seq (seq nat)) (n h j : nat) : seq nat := if h is h'.+1 then
  if (j < size cs)%N then let c := nth [::] cs j in
    if (sumn c < n)%N then [:: seq.index (set_nth 0 c h' (nth 0 c h').+1) cs] else [::]
  else [::] else if (j < size cs)%N then [:: j] else [::].
Definition counting (H L : nat) : ones :=
  let cs := states H.-1 L in Ones unread unread (fun _ h => count_up cs L h) (fun i => [:: i]).

(* --- the stream as one more head, in front (Streams.v) --- *)
Definition silent_ones (o : ones) : ones :=
  Ones (fun l h j => if h is h'.+1 then oQ o l h' j else [::]) (fun l h j => if h is h'.+1 then oK o l h' j else [::])
    (fun l h j => if h is h'.+1 then oV o l h' j else [:: j]) (oU o).
Definition silent_heads (m : nat) (S : nat -> nat -> head Z) (l h : nat) : head Z :=
  if h is h'.+1 then S l h' else Head [::] [::] (dense m m (fun j => [:: j])).

Local Open Scope ring_scope.
(* --- a host times constants: u, and for each value matrix one of its own --- *)
Section Scaled.
Variables (F : fieldType) (H d dout m L : nat) (u : F) (v : 'I_H -> F).
Variables (S : nat -> layer F H d m) (U : 'M[F]_(m, dout)).
Hypotheses (u0 : u != 0) (v0 : forall h, v h != 0).
Definition scaled (l : nat) : layer F H d m :=
  Layer (fun h => u *: lQ (S l) h) (fun h => u *: lK (S l) h) (fun h => v h *: lV (S l) h).
Let along (w : seq 'I_H) : F := \prod_(h <- w) v h.
Lemma wprod_scaled w l : wprod (values scaled) l w = along w *: wprod (values S) l w.
Proof.
elim: w l => [|h w IH] l /=; first by rewrite /along big_nil scale1r.
by rewrite IH /values /= /along big_cons -scalemxAl -scalemxAr scalerA.
Qed.
Let degree (c : column H d dout L) : F := u * (if c is inl (w, _) then along (prew w) else
  if c is inr (w, _) then along w else 1).
Lemma degree_neq0 c : degree c != 0.
Proof.
have a0 w : along w != 0 by rewrite /along prodf_seq_neq0; apply/allP => h _; apply/implyP.
by rewrite /degree mulf_neq0 //; case: c => -[].
Qed.
Let D : 'M[F]_#|column H d dout L| := diag_mx (\row_c degree (enum_val c)).
Lemma Rall_scaled : Rall L scaled (u *: U) = Rall L S U *m D.
Proof.
apply/matrixP => i c; rewrite mul_mx_diag !mxE; case: (enum_val c) => [[w j]|[w j]] /=; last first.
  by rewrite wprod_scaled -scalemxAl -scalemxAr scalerA mxE mulrC; congr (_ * _); exact: mulrC.
by case: (split j) => k; rewrite wprod_scaled -scalemxAl -scalemxAr scalerA mxE mulrC; congr (_ * _); exact: mulrC.
Qed.
Lemma D_unit : D \in unitmx.
Proof.
by rewrite unitmxE det_diag unitfE prodf_seq_neq0; apply/allP => c _; rewrite mxE degree_neq0.
Qed.
Definition inverse_degrees : 'rV[F]_#|column H d dout L| := \row_c (degree (enum_val c))^-1.
Lemma Rall_unscaled : Rall L scaled (u *: U) *m diag_mx inverse_degrees = Rall L S U.
Proof. by apply/matrixP => i c; rewrite Rall_scaled !mul_mx_diag !mxE mulfK ?degree_neq0. Qed.
Lemma inverse_degrees_neq0 c : inverse_degrees 0 c != 0.
Proof. by rewrite mxE invr_eq0 degree_neq0. Qed.
Lemma rank_scaled : \rank (Rall L scaled (u *: U)) = \rank (Rall L S U).
Proof. by rewrite Rall_scaled mxrankMfree // row_free_unit D_unit. Qed.
Lemma kernel_scaled (z : 'cV[F]_#|column H d dout L|) c : Rall L S U *m z = 0 -> z (enum_rank c) 0 != 0 ->
  exists y : 'cV[F]_#|column H d dout L|, Rall L scaled (u *: U) *m y = 0 /\ y (enum_rank c) 0 != 0.
Proof.
move=> Rz zc; exists (invmx D *m z); rewrite Rall_scaled -mulmxA mulKVmx ?D_unit //; split=> //.
apply: contraNneq zc => y0; have := mulKVmx D_unit z; rewrite {1}/D mul_diag_mx => /matrixP/(_ (enum_rank c) 0).
by rewrite mxE y0 mulr0 => <-.
Qed.
End Scaled.

(* --- a selection of coordinates --- *)
Section Permuted.
Variables (o : ones) (H d dout m L : nat).
Fixpoint words (l : nat) : seq (seq nat) := if l is l'.+1 then [seq h :: w | h <- iota 0 H, w <- words
  l'] else [:: [::]].
Fixpoint follow (l : nat) (w : seq nat) (xs : seq nat) : seq nat :=
  if w is h :: w' then flatten [seq oV o l h j | j <- follow l.+1 w' xs & (j < m)%N] else xs.
Definition code := (nat * seq nat * nat)%type.
Definition lands (inv : seq code) (c : code) (xs : seq nat) : bool :=
  if xs is [:: a] then (a < m)%N && (nth (3, [::], 0)%N inv a == c) else false.
Definition permuted (inv : seq code) : bool :=
  all (fun l => all (fun w => all (fun h => all (fun j =>
      lands inv (0%N, rcons w h, j) (follow 0 w (oQ o l h j)) && lands inv (1%N, rcons w h, j) (follow 0
        w (oK o l h j)))
    (iota 0 d)) (iota 0 H)) (words l)) (iota 0 L)
  && all (fun w => all (fun j => lands inv (2%N, w, j) (follow 0 w (oU o j))) (iota 0 dout)) (words L).

Variable R : ringType.
Notation hostR := (host Z0 (inject R) H d m (ones_head o d m)).
Notation outR := (out Z0 (inject R) dout m (ones_out o dout m)).
Definition counts (xs : seq nat) : 'cV[R]_m := \col_i (count_mem (i : nat) xs)%:R.
Lemma mof_dense c f (j : 'I_c) : col j (mof Z0 (inject R) m c (dense m c f)) = counts (f j).
Proof. by apply/colP => i; rewrite !mxE !(nth_map 0%N) ?size_iota // !nth_iota ?ltn_ord // add0n
  inject_nat. Qed.
Lemma mof_counts f xs : mof Z0 (inject R) m m (dense m m f) *m counts xs = counts (flatten [seq f j | j
  <- xs & (j < m)%N]).
Proof.
elim: xs => [|x xs IH].
  by apply/colP => i; rewrite !mxE big1 // => k _; rewrite !mxE mulr0.
have -> : counts (x :: xs) = counts [:: x] + counts xs by apply/colP => i; rewrite !mxE /= addn0 natrD.
rewrite mulmxDr IH /=; case: ifP => xm /=.
  have -> : counts [:: x] = delta_mx (Ordinal xm) 0.
    by apply/colP => i; rewrite !mxE /= addn0 eqxx andbT -val_eqE /= eq_sym.
  by rewrite -colE mof_dense /=; apply/colP => i; rewrite !mxE count_cat natrD.
rewrite (_ : counts [:: x] = 0) ?mulmx0 ?add0r //; apply/colP => i; rewrite !mxE /= addn0.
by case: eqP => // e; rewrite e ltn_ord in xm.
Qed.
Lemma wprod_counts l (w : seq 'I_H) xs :
  wprod (values hostR) l w *m counts xs = counts (follow l [seq nat_of_ord h | h <- w] xs).
Proof. by elim: w l => [|h w IH] l /=; rewrite ?mul1mx // -mulmxA IH mof_counts. Qed.
Lemma words_mem (w : seq 'I_H) : [seq nat_of_ord h | h <- w] \in words (size w).
Proof.
by elim: w => //= h w IH; apply/allpairsP; exists (nat_of_ord h, [seq nat_of_ord h | h <- w]); rewrite
  mem_iota IH /=.
Qed.

Let name (c : column H d dout L) : code := match c with
  | inl (w, j) => let v := [seq nat_of_ord h | h <- letters w] in
      match split j with inl j => (0, v, j : nat) | inr j => (1, v, j : nat) end
  | inr (w, j) => (2, [seq nat_of_ord h | h <- w], j : nat) end%N.
Lemma name_inj : injective name.
Proof.
have v_inj : injective (map (@nat_of_ord H)) by exact/inj_map/ord_inj.
move=> [[w j]|[w j]] [[w' j']|[w' j']] /=; try by case: (split _).
  move=> e; have [ew ej] : w = w' /\ split j = split j'.
    by move: e; case: (split j) => k; case: (split j') => k' [] // /v_inj/letters_inj -> /ord_inj ->.
  by rewrite ew -(splitK j) ej splitK.
by case=> /v_inj/val_inj -> /ord_inj ->.
Qed.

Theorem permuted_left_inverse inv : permuted inv -> exists B, B *m Rall L hostR outR = 1%:M.
Proof.
case/andP => /allP okQK /allP okU.
have land_sum (x : code) c xs : lands inv c xs -> \sum_(i < m) (nth (3, [::], 0)%N inv i == x)%:R *
  (counts xs) i 0 = (c == x)%:R :> R.
  case: xs => [|a [|]] //= /andP[am /eqP <-]; rewrite (bigD1 (Ordinal am)) //= big1 ?addr0 => [|k /negbTE ne].
    by rewrite mxE /= eqxx mulr1.
  by rewrite mxE /= addn0 -val_eqE /= eq_sym in ne *; rewrite ne mulr0.
exists (\matrix_(c, i) (nth (3, [::], 0)%N inv i == name (enum_val c))%:R).
apply/matrixP => c c'; rewrite !mxE.
have -> : (c == c')%:R = (name (enum_val c') == name (enum_val c))%:R :> R.
  by rewrite (inj_eq name_inj) (inj_eq enum_val_inj) eq_sym.
suff [xs] : exists2 xs, lands inv (name (enum_val c')) xs & forall i, Rall L hostR outR i c' = counts xs i 0.
  by move=> /(land_sum (name (enum_val c))) <- E; apply: eq_bigr => i _; rewrite mxE E.
have column_counts n (w : seq 'I_H) f (j : 'I_n) i :
    (wprod (values hostR) 0 w *m mof Z0 (inject R) m n (dense m n f)) i j = counts (follow 0 [seq
      nat_of_ord h | h <- w] (f j)) i 0.
  by rewrite -wprod_counts -mof_dense [LHS]mxE [RHS]mxE; apply: eq_bigr => k _; rewrite [in RHS]mxE.
case e : (enum_val c') => [[w j]|[w j]]; last first.
  exists (follow 0 [seq nat_of_ord h | h <- w] (oU o j)); last by move=> i; rewrite mxE e column_counts.
  have wm := words_mem w; rewrite size_tuple in wm.
  by have /allP := okU _ wm; apply; rewrite mem_iota /=.
have lw : letters w = rcons (prew w) (lastw w) by exact: lettersE.
have /allP okl := okQK (tag w : nat) ltac:(by rewrite mem_iota /=).
have wm := words_mem (prew w); rewrite size_tuple in wm.
have /allP okh := okl _ wm; have /allP okj := okh (lastw w : nat) ltac:(by rewrite mem_iota /=).
rewrite /name lw map_rcons.
case sp : (split j) => [j'|j']; have /andP[okq okk] := okj (j' : nat) ltac:(by rewrite mem_iota /=).
  by exists (follow 0 [seq nat_of_ord h | h <- prew w] (oQ o (tag w) (lastw w) j')) => // i; rewrite mxE
    e sp column_counts.
by exists (follow 0 [seq nat_of_ord h | h <- prew w] (oK o (tag w) (lastw w) j')) => // i; rewrite mxE e
  sp column_counts.
Qed.
End Permuted.
