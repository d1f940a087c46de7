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
Definition random_head (tied : bool) (f : law) (seed : Z) (d m l h : nat) : head Z :=
  let l := if tied then 0%N else l in
  Head (drawn f seed 0 l h m d) (drawn f seed 1 l h m d) (drawn f seed 2 l h m m).
Definition random_out (f : law) (seed : Z) (dout m : nat) : mat Z := drawn f seed 3 0 0 m dout.
(* the least t with isqrt(4^t / r) >= 2^20; every entry is a numerator times c 2^-k *)
Fixpoint least (n t : nat) (r : Z) : nat := if n is n'.+1 then
  if Z.leb 1048576 (Z.sqrt (Z.div (Z.pow 4 (Z.of_nat t)) r)) then t else least n' t.+1 r else t.
Definition unit_of (f : law) (r : nat) : Z * Z :=
  let t := least 200 0 (Z.of_nat r) in
  let c := Z.sqrt (Z.div (Z.pow 4 (Z.of_nat t)) (Z.of_nat r)) in
  match f with Uniform => (c, Z.pow 2 (Z.of_nat (t + 32))) | Signs => (Zpos xH, Zpos xH) | Binomial =>
    (c, Z.pow 2 (Z.of_nat (t + 2))) end.

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

(* section 4.1 *)
Definition sparse (H L d dout : nat) : ones :=
  let b := (2 * H * d)%N in
  let place j := let: (t, s) := block_of L H b L 0 j in if (t < L)%N then (t, s) else (L, s %/ dout) in
  let sub q l h i := [seq (begins H b l + s * b + (q * H + h) * d + i)%N | s <- iota 0 (H ^ l)] in
  Ones (sub 0%N) (sub 1%N)
    (fun l h j => let: (t, s) := place j in if (l < t)%N && (s < H ^ t)%N && (letter H t s l == h) then
      [:: j] else [::])
    (fun i => [seq (begins H b L + s * dout + i)%N | s <- iota 0 (H ^ L)]).

(* section 4.3 *)
Definition tied (H L d dout : nat) : ones :=
  let b := (2 * d)%N in
  let start t := (begins H b t - b)%N in
  let register := start L.+1 in
  Ones (fun _ h i => [:: h * b + i]%N) (fun _ h i => [:: h * b + d + i]%N)
    (fun _ h j =>
      if (j < register)%N then
        let: (t, s) := block_of L H b L 1 j in
        if (t < L)%N then [:: start t.+1 + (h * H ^ t + s) * b + j %% b]%N else [::]
      else let s := ((j - register) %/ dout)%N in
        if (s < H ^ L)%N then [:: register + (h * H ^ L.-1 + s %/ H) * dout + (j - register) %% dout]%N
          else [::])
    (fun i => [:: register + i]%N).

Local Open Scope ring_scope.
(* --- a host times a constant --- *)
Section Scaled.
Variables (F : fieldType) (H d dout m L : nat) (u : F).
Variables (S : nat -> layer F H d m) (U : 'M[F]_(m, dout)).
Hypothesis u0 : u != 0.
Definition scaled (l : nat) : layer F H d m :=
  Layer (fun h => u *: lQ (S l) h) (fun h => u *: lK (S l) h) (fun h => u *: lV (S l) h).
Lemma wprod_scaled w l : wprod (values scaled) l w = u ^+ size w *: wprod (values S) l w.
Proof.
elim: w l => [|h w IH] l /=; first by rewrite expr0 scale1r.
by rewrite IH /values /= -scalemxAl -scalemxAr scalerA exprS.
Qed.
Let degree (c : column H d dout L) : nat := if c is inl (w, _) then (tag w).+1 else L.+1.
Let D : 'M[F]_#|column H d dout L| := diag_mx (\row_c u ^+ degree (enum_val c)).
Lemma Rall_scaled : Rall L scaled (u *: U) = Rall L S U *m D.
Proof.
apply/matrixP => i c; rewrite mul_mx_diag !mxE; case: (enum_val c) => [[w j]|[w j]] /=; last first.
  by rewrite wprod_scaled size_tuple -scalemxAl -scalemxAr scalerA -exprSr mxE mulrC.
by case: (split j) => k; rewrite wprod_scaled size_tuple -scalemxAl -scalemxAr scalerA -exprSr mxE mulrC.
Qed.
Lemma D_unit : D \in unitmx.
Proof.
by rewrite unitmxE det_diag unitfE prodf_seq_neq0; apply/allP => c _; rewrite mxE expf_neq0.
Qed.
Lemma rank_scaled : \rank (Rall L scaled (u *: U)) = \rank (Rall L S U).
Proof. by rewrite Rall_scaled mxrankMfree // row_free_unit D_unit. Qed.
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
Let counts (xs : seq nat) : 'cV[R]_m := \col_i (count_mem (i : nat) xs)%:R.
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
