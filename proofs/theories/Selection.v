(* {0,1} matrices: selections of coordinates, and how many nonzero entries they have. *)
(*                                                                            *)
(*   rel_mx r      the {0,1} matrix of a relation between two finite types        *)
(*   sel f         the matrix that selects the coordinates f 0, f 1, ...         *)
(*   is01 A        every entry is 0 or 1                                        *)
(*   nnz A         the number of nonzero entries                                *)
From mathcomp Require Import all_ssreflect all_algebra.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

Section Selection.
Variables (R : ringType) (C : finType).

Definition sel n (f : 'I_n -> C) : 'M[R]_(#|C|, n) := \matrix_(u, j) (enum_val u == f j)%:R.

Lemma mul_sel n (f : 'I_n -> C) a (A : 'M[R]_(a, #|C|)) :
  A *m sel f = \matrix_(i, j) A i (enum_rank (f j)).
Proof.
apply/matrixP => i j; rewrite !mxE (bigD1 (enum_rank (f j))) //= !mxE enum_rankK eqxx mulr1.
rewrite big1 ?addr0 // => u; rewrite mxE -(inj_eq enum_val_inj) enum_rankK => /negbTE ->.
by rewrite mulr0.
Qed.

(* the {0,1} square matrix of a relation, and when it moves one selection to another *)
Definition rel_mx (r : rel C) : 'M[R]_#|C| := \matrix_(u, v) (r (enum_val u) (enum_val v))%:R.

Lemma rel_mx_sel (r : rel C) n (f g : 'I_n -> C) :
  (forall u j, r u (f j) = (u == g j)) -> rel_mx r *m sel f = sel g.
Proof.
move=> e; rewrite mul_sel; apply/matrixP => u j.
by rewrite !mxE enum_rankK e.
Qed.

End Selection.

Section Sparsity.
Variable R : ringType.

Definition is01 a b (A : 'M[R]_(a, b)) := forall i j, A i j = 0 \/ A i j = 1.
Definition nnz a b (A : 'M[R]_(a, b)) := #|[set ij : 'I_a * 'I_b | A ij.1 ij.2 != 0]|.

Lemma is01_bool a b (r : 'I_a -> 'I_b -> bool) : is01 (\matrix_(i, j) (r i j)%:R).
Proof. by move=> i j; rewrite mxE; case: (r i j); [right|left]. Qed.

(* at most one nonzero entry in each column / each row *)
Lemma nnz_col a b (A : 'M[R]_(a, b)) :
  (forall i i' j, A i j != 0 -> A i' j != 0 -> i = i') -> (nnz A <= b)%N.
Proof.
move=> inj; have inj' : {in [set ij : 'I_a * 'I_b | A ij.1 ij.2 != 0] &, injective snd}.
  by move=> [i j] [i' j']; rewrite !inE /= => n1 n2 e; rewrite -e in n2 *; rewrite (inj _ _ _ n1 n2).
by rewrite /nnz -(card_in_imset inj') -[X in (_ <= X)%N]card_ord max_card.
Qed.

Lemma nnz_row a b (A : 'M[R]_(a, b)) :
  (forall i j j', A i j != 0 -> A i j' != 0 -> j = j') -> (nnz A <= a)%N.
Proof.
move=> inj; have inj' : {in [set ij : 'I_a * 'I_b | A ij.1 ij.2 != 0] &, injective fst}.
  by move=> [i j] [i' j']; rewrite !inE /= => n1 n2 e; rewrite -e in n2 *; rewrite (inj _ _ _ n1 n2).
by rewrite /nnz -(card_in_imset inj') -[X in (_ <= X)%N]card_ord max_card.
Qed.

Lemma natr_neq0 (b : bool) : (b%:R != 0 :> R) -> b.
Proof. by case: b => //; rewrite eqxx. Qed.

End Sparsity.
