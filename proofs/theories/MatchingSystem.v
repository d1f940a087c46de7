(* The matching equations as one linear system E R_all = W_all.                 *)
(*                                                                            *)
(*   column H d din L   the columns: 2d for every nonempty word of length at most L *)
(*                      (d of Q, then d of K), din for every word of length L;   *)
(*                      there are M = 2 d S + d_in H^L of them                   *)
(*   pack BQ BK BV      the matrix with these columns                           *)
(*   Rall L S U, Wall L T   the paper's R_all and W_all                          *)
(*   matchesP           E matches T iff E R_all = W_all                          *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

Section Pack.
Variables (H d din L : nat).

Definition column := [finType of word H L * 'I_(d + d) + L.-tuple 'I_H * 'I_din].

Lemma card_column : #|column| = matching_dimension H L d din.
Proof. by rewrite card_sum !card_prod card_word card_tuple !card_ord addnn -mul2n mulnC. Qed.

Definition pack (R : ringType) a (BQ BK : forall l, l.-tuple 'I_H -> 'I_H -> 'M[R]_(a, d))
    (BV : L.-tuple 'I_H -> 'M[R]_(a, din)) : 'M[R]_(a, #|column|) :=
  \matrix_(i, c) match enum_val c with
  | inl (w, j) => match split j with
       | inl j => BQ _ (prew w) (lastw w) i j
       | inr j => BK _ (prew w) (lastw w) i j end
  | inr (w, j) => BV w i j end.

Section Blocks.
Variables (R : ringType) (a : nat).
Variables (BQ BK BQ' BK' : forall l, l.-tuple 'I_H -> 'I_H -> 'M[R]_(a, d)).
Variables (BV BV' : L.-tuple 'I_H -> 'M[R]_(a, din)).

Lemma mul_pack b (A : 'M[R]_(b, a)) : A *m pack BQ BK BV =
  pack (fun l w h => A *m BQ w h) (fun l w h => A *m BK w h) (fun w => A *m BV w).
Proof.
apply/matrixP => i c; rewrite !mxE; under eq_bigr => u _ do rewrite mxE.
case: (enum_val c) => [[w j]|[w j]]; last by rewrite mxE.
by case: (split j) => j'; rewrite mxE.
Qed.

(* equality of packed matrices is equality of the blocks *)
Lemma pack_inj : pack BQ BK BV = pack BQ' BK' BV' ->
  [/\ forall l (w : l.-tuple 'I_H) h, (l < L)%N -> BQ w h = BQ' w h,
      forall l (w : l.-tuple 'I_H) h, (l < L)%N -> BK w h = BK' w h &
      forall w, BV w = BV' w].
Proof.
move=> /matrixP e; split=> [l w h lL|l w h lL|w]; apply/matrixP => i j.
- have := e i (enum_rank (inl (mkword w h lL, lshift d j))).
  by rewrite !mxE enum_rankK (unsplitK (inl j)) (mkwordK w h lL (@BQ)) (mkwordK w h lL (@BQ')).
- have := e i (enum_rank (inl (mkword w h lL, rshift d j))).
  by rewrite !mxE enum_rankK (unsplitK (inr j)) (mkwordK w h lL (@BK)) (mkwordK w h lL (@BK')).
- by have := e i (enum_rank (inr (w, j))); rewrite !mxE enum_rankK.
Qed.

Lemma eq_pack :
  (forall l (w : l.-tuple 'I_H) h, (l < L)%N -> BQ w h = BQ' w h) ->
  (forall l (w : l.-tuple 'I_H) h, (l < L)%N -> BK w h = BK' w h) ->
  (forall w, BV w = BV' w) -> pack BQ BK BV = pack BQ' BK' BV'.
Proof.
move=> eQ eK eV; apply/matrixP => i c; rewrite !mxE.
case: (enum_val c) => [[w j]|[w j]]; last by rewrite eV.
by case: (split j) => j'; rewrite ?eQ ?eK ?ltn_ord.
Qed.
End Blocks.

Lemma map_pack (R R' : ringType) (f : {rmorphism R -> R'}) a
  (BQ BK : forall l, l.-tuple 'I_H -> 'I_H -> 'M[R]_(a, d)) (BV : L.-tuple 'I_H -> 'M[R]_(a, din)) :
  map_mx f (pack BQ BK BV) =
  pack (fun l w h => map_mx f (BQ l w h)) (fun l w h => map_mx f (BK l w h)) (fun w => map_mx f (BV w)).
Proof.
apply/matrixP => i c; rewrite !mxE.
case: (enum_val c) => [[w j]|[w j]]; last by rewrite mxE.
by case: (split j) => j'; rewrite mxE.
Qed.
End Pack.

Section System.
Variables (R : ringType) (H d din m L : nat).
Variables (S : nat -> layer R H d m) (U : 'M[R]_(m, din)).

Definition Rall : 'M[R]_(m, #|column H d din L|) :=
  pack (fun l w h => wprod (values S) 0 w *m lQ (S l) h)
       (fun l w h => wprod (values S) 0 w *m lK (S l) h)
       (fun w : L.-tuple 'I_H => wprod (values S) 0 w *m U).

Definition Wall (T : nat -> layer R H d din) : 'M[R]_(din, #|column H d din L|) :=
  pack (fun l w h => wprod (values T) 0 w *m lQ (T l) h)
       (fun l w h => wprod (values T) 0 w *m lK (T l) h)
       (fun w : L.-tuple 'I_H => wprod (values T) 0 w).

Lemma matchesP (T : nat -> layer R H d din) E : matches L S U T E <-> E *m Rall = Wall T.
Proof.
rewrite /Rall /Wall mul_pack; split=> [[eQ eK eV]|/pack_inj[eQ eK eV]].
  by apply: eq_pack => [l w h lL|l w h lL|w]; rewrite mulmxA ?eQ ?eK ?eV.
split=> [l w h lL|l w h lL|w]; rewrite -mulmxA; first exact: eQ.
  exact: eK.
exact: eV.
Qed.

End System.
