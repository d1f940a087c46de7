(* What the checks of single kinds need.                                                                    *)
(*                                                                                                         *)
(*   choose n k           binomial coefficients without recursion on both numbers                          *)
(*   tested C S           queries times the gauges' transposes: the linear test as an R_all; tested_rank   *)
(*   vanishes V ys w      the products of value matrices along words, with coefficients ys, sum to zero,    *)
(*                        and the coefficient of the word w is not zero; vanishes_sound                    *)
From Coq Require Import ZArith.
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words MatchingSystem Emulation Spanning SharedBounds BaseChange Counting.
From UtfproofChecker Require Import Layers Integers Streams Hosts.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* from the nearer end, where no number on the way is larger than the result times n: they are machine integers when run *)
Fixpoint choose_up (n k : nat) : nat := if k is k'.+1 then (choose_up n k' * (n - k') %/ k)%N else 1%N.
Definition choose (n k : nat) : nat := if (k <= n)%N then choose_up n (minn k (n - k)) else 0%N.
Lemma chooseE n k : choose n k = 'C(n, k).
Proof.
have up j : choose_up n j = 'C(n, j) by elim: j => [|j IH] /=; rewrite ?bin0 // IH mulnC -mul_bin_left mulKn.
rewrite /choose up; case: leqP => [kn|/bin_small -> //]; rewrite /minn; case: ifP => // _; exact: bin_sub.
Qed.

Lemma none_shares_tied (F : numFieldType) H d m L (V : nat -> 'I_H -> 'M[F]_m) (U : 'M[F]_(m, 1)) (both : bool) :
  (0 < d)%N -> (0 < H)%N -> ((if both then m ^ 2 else m) < 'C(L + H.-1, H.-1))%N ->
  ~ forall T : transformer F H d 1, looped T -> exists (E : 'M_(1, m)) (U' : 'M_(m, 1)),
      (both \/ U' = U) /\ shared_emulates L V (values (layers T)) E U' (@row_stochastic F).
Proof.
case: H V => // H' V d0 _ lt univ; have inf := char0_infinite (char_num F).
suff : ('C(L + H', H') <= if both then m ^ 2 else m)%N by rewrite leqNgt lt.
case: both lt univ => lt univ.
  apply: (counting_free_bound (V := V) inf d0) => T /univ[E [U' [_ /spanning_lemma_stochastic EU]]].
  by exists E, U'.
apply: (counting_lower_bound (V := V) inf d0 (U := U)) => T /univ[E [U' [[//|->] /spanning_lemma_stochastic EU]]].
by exists E.
Qed.

(* --- the linear test --- *)
Section Tested.
Variables (H d din m : nat) (C : nat -> nat -> mat Z) (S : nat -> nat -> head Z).
Definition gauged (Q G : mat Z) : mat Z := [seq [seq dot Z0 Z.add Z.mul q (take d g) | g <- take din G] | q <- Q].
Definition tested (l h : nat) : head Z := let x := S l h in Head (gauged (hQ x) (C l h)) (hK x) (hV x).
Variables (F : fieldType) (U : mat Z) (L : nat).
Notation hostF := (host Z0 (inject F) H d m S).
Notation outF := (out Z0 (inject F) din m U).
Definition gauges (l : nat) (h : 'I_H) : 'M[F]_(din, d) := mof Z0 (inject F) din d (C l h).
Lemma gaugedE (Q G : mat Z) i j : inject F (nth Z0 (nth [::] (gauged Q G) i) j) =
  if (j < din)%N then \sum_(k < d) inject F (nth Z0 (nth [::] Q i) k) * inject F (nth Z0 (nth [::] G j) k) else 0.
Proof.
case: (ltnP i (size Q)) => iQ; last first.
  rewrite (nth_default [::]) ?size_map // nth_nil; case: ifP => // _.
  by rewrite big1 // => k _; rewrite (nth_default [::] iQ) nth_nil mul0r.
rewrite (nth_map [::]) //; case: (ltnP j (size (take din G))) => jG.
  have jd : (j < din)%N by apply: leq_trans jG _; rewrite size_take; case: ltnP.
  by rewrite (nth_map [::]) // (dotE (inject0 F) (@injectD F) (@injectM F)) jd nth_take.
rewrite nth_default ?size_map //; case: ifP => // jd; rewrite big1 // => k _.
rewrite [nth [::] G j]nth_default ?nth_nil ?mulr0 //.
by move: jG; rewrite size_take; case: ltnP => // _; rewrite leqNgt jd.
Qed.
Let to (c : column H d din L) : option (test_column H d din L) := match c with
  | inl (w, j) => match split j with
      | inl j => omap (fun j : 'I_din => inl (inl (w, j))) (insub (val j)) | inr j => Some (inl (inr (w, j))) end
  | inr (w, j) => Some (inr (w, j)) end.
Lemma tested_rank (u : F) (v : 'I_H -> F) :
  (\rank (Rall L (scaled u v (host Z0 (inject F) H d m tested)) (u *: outF)) <=
   \rank (test_matrix L (scaled u v hostF) (u *: outF) gauges))%N.
Proof.
apply: (@rank_columns _ _ _ _ _ _ (fun c => omap enum_rank (to (enum_val c)))) => i c.
have ew w : wprod (values (scaled u v (host Z0 (inject F) H d m tested))) 0 w = wprod (values (scaled u v hostF)) 0 w.
  exact: eq_wprod.
rewrite mxE /to; case: (enum_val c) => [[w j]|[w j]] /=; last by rewrite [RHS]mxE enum_rankK ew.
case: (split j) => k; rewrite ew; last by rewrite [RHS]mxE enum_rankK.
rewrite mxE; case: insubP => [k' _ e|]; last first.
  rewrite -leqNgt => dk; rewrite big1 // => a _; rewrite /= !mxE gaugedE ltnNge dk /=.
  by rewrite mulr0 mulr0.
rewrite [RHS]mxE enum_rankK mxE; apply: eq_bigr => a _; congr (_ * _); rewrite /= -scalemxAl !mxE; congr (_ * _).
by rewrite gaugedE -e ltn_ord; apply: eq_bigr => b _; rewrite !mxE.
Qed.
End Tested.

(* --- matrices R_w that are dependent --- *)
Section Vanishing.
Variables (H m : nat) (V : nat -> nat -> mat Z).
Definition index (w : seq nat) : nat := foldl (fun a h => a * H + h)%N 0%N w.
(* the coefficients as leaves: the entry i of each, and nothing else *)
Fixpoint fan (k off : nat) (ys : vec Z) (i : nat) : tree Z := if k is k'.+1 then
  Node [seq ([::], [::], fan k' (off * H + h)%N ys i) | h <- iota 0 H]
  else Leaf [seq (if j == i then nth Z0 ys off else Z0) | j <- iota 0 m].
Definition value_head (l h : nat) : head Z := Head [::] [::] (V l h).
Definition vanishes (L : nat) (ys : vec Z) (w : seq nat) : bool :=
  [&& size w == L, all (fun h => h < H)%N w, nzZ (nth Z0 ys (index w)) &
    all (fun i => all0 nzZ m (apply Z0 Z.add Z.mul id H 0 m m value_head (dense m m (fun j => [:: j])) L 0 (fan L 0 ys i)))
      (iota 0 m)].

Variables (F : numFieldType) (d din L : nat).
Notation VF := (fun l (h : 'I_H) => mof Z0 (inject F) m m (V l h)).
Let y (ys : vec Z) (w : seq 'I_H) : F := inject F (nth Z0 ys (index [seq nat_of_ord h | h <- w])).
Lemma descend_fan k off ys i (w : seq 'I_H) : size w = k ->
  leaf (descend (fan k off ys i) w)
  = [seq (if j == i then nth Z0 ys (foldl (fun a h => a * H + h)%N off [seq nat_of_ord h | h <- w]) else Z0) | j <- iota 0 m].
Proof.
elim: k off w => [|k IH] off [|h w] //= [sz]; rewrite -[LHS]/(leaf (descend (at_head (fan k.+1 off ys i) h).2 w)) /=.
by rewrite (nth_map 0%N) ?size_iota // nth_iota // add0n /= IH.
Qed.
Theorem vanishes_sum ys w : vanishes L ys w ->
  \sum_(v : L.-tuple 'I_H) y ys v *: wprod VF 0 v = 0 /\ exists v : L.-tuple 'I_H, y ys v != 0.
Proof.
case/and4P => /eqP sz /allP wH nz /allP zero; split; last first.
  have e : [seq nat_of_ord h | h <- pmap insub w : seq 'I_H] = w.
    by elim: w wH {sz nz} => //= h w IH wH; rewrite insubT ?wH ?mem_head //= => hH; rewrite IH // => x xw; rewrite wH // inE xw orbT.
  have sz' : size (pmap insub w : seq 'I_H) == L by rewrite -sz -{2}e size_map.
  by exists (Tuple sz'); rewrite /y /= e -inject_nz.
have eyeE : out Z0 (inject F) m m (dense m m (fun j => [:: j])) = 1%:M.
  apply/matrixP => i j; rewrite !mxE (nth_map 0%N) ?size_iota // (nth_map 0%N) ?size_iota // !nth_iota //=.
  by rewrite addn0 inject_nat eq_sym.
apply/matrixP => a i; rewrite [RHS]mxE.
have := zero (i : nat) ltac:(by rewrite mem_iota /=).
rewrite (cof_all0 (inject0 F) (inject_nz F)) (applyE (inject0 F) (@injectD F) (@injectM F)) //.
rewrite (sem_unroll _ _ _ _ _ _ _ _ _ (leqnn L)) subnn /= eyeE big1 => [|l _]; last first.
  rewrite big1 // => v _; rewrite big1 // => h _.
  by rewrite (_ : _ + _ = 0) ?mulmx0 //; apply/matrixP => x z; rewrite !mxE !big_ord0 addr0.
rewrite add0r => /eqP/matrixP/(_ a 0); rewrite summxE [X in _ = X -> _]mxE => e0.
rewrite summxE -[RHS]e0; apply: eq_bigr => v _.
rewrite mul1mx descend_fan ?size_tuple // mxE [RHS]mxE (bigD1 i) //= big1 ?addr0 => [|j /negbTE ne].
  by rewrite mxE (nth_map 0%N) ?size_iota // nth_iota //= eqxx mulrC.
rewrite mxE (nth_map 0%N) ?size_iota // nth_iota //= -val_eqE /= in ne *; by rewrite ne mulr0.
Qed.
Theorem vanishes_sound ys w : (0 < d)%N -> (0 < din)%N -> vanishes L ys w ->
  ~ forall T : transformer F H d din, exists (E : 'M_(din, m)) (U : 'M_(m, din)),
      shared_emulates L VF (values (layers T)) E U (@row_stochastic F).
Proof.
move=> d0 din0 /vanishes_sum[sum0 [v yv]] univ; pose j := Ordinal din0.
have [E [U]] := univ (diag_target (SharedBounds.follow F v) (Ordinal d0) j).
move/spanning_lemma_stochastic => EP.
have entry (v' : L.-tuple 'I_H) : (delta_mx 0 j *m E *m wprod VF 0 v' *m U *m delta_mx j 0 : 'M_1) 0 0 = (v' == v)%:R.
  by rewrite -(mulmxA _ E) -(mulmxA _ _ U) EP wprod_diag_target weight_follow ?size_tuple // -scalemxAl mul_delta_mx !mxE !eqxx mulr1 val_eqE.
have := congr1 (fun A => (delta_mx 0 j *m E *m A *m U *m delta_mx j 0 : 'M_(1, 1)) 0 0) sum0.
rewrite /= mulmx0 !mul0mx [X in _ = X -> _]mxE mulmx_sumr !mulmx_suml summxE => /eqP; apply/negP.
rewrite (bigD1 v) //= big1 ?addr0 => [|v' /negbTE ne].
  by rewrite -scalemxAr -!scalemxAl mxE entry eqxx mulr1.
by rewrite -scalemxAr -!scalemxAl mxE entry ne mulr0.
Qed.
End Vanishing.
