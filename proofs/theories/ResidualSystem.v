(* The residual matching equations as one linear system E R_all = W_all.         *)
(*                                                                            *)
(*   res_pack BQ BK BV   the matrix whose columns are these blocks                *)
(*   res_Rall L S U      the host's matrix, m x M_res                            *)
(*   res_Wall L T        the target's matrix, d_in x M_res                       *)
(*   res_matchesP        E matches T iff E R_all = W_all                         *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Residual ResidualWords.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

Section Pack.
Variables (R : ringType) (H d din L : nat).
Notation letter := (option 'I_H).
Notation column := (res_column H d din L).

Definition res_pack b (BQ BK : forall l, l.-tuple letter -> 'I_H -> 'M[R]_(b, d))
    (BV : L.-tuple letter -> 'M[R]_(b, din)) : 'M[R]_(b, #|column|) :=
  \matrix_(i, c) match enum_val c with
  | inl (x, j) => match split j with
       | inl j => BQ _ (tagged x).1 (tagged x).2 i j
       | inr j => BK _ (tagged x).1 (tagged x).2 i j end
  | inr (w, j) => BV w i j end.

Variables (a : nat).
Variables (BQ BK BQ' BK' : forall l, l.-tuple letter -> 'I_H -> 'M[R]_(a, d)).
Variables (BV BV' : L.-tuple letter -> 'M[R]_(a, din)).

Lemma mul_res_pack b (A : 'M[R]_(b, a)) : A *m res_pack BQ BK BV =
  res_pack (fun l w h => A *m BQ w h) (fun l w h => A *m BK w h) (fun w => A *m BV w).
Proof.
apply/matrixP => i c; rewrite !mxE; under eq_bigr => u _ do rewrite mxE.
case: (enum_val c) => [[w j]|[w j]]; last by rewrite mxE.
by case: (split j) => j'; rewrite mxE.
Qed.

(* equality of packed matrices is equality of the blocks *)
Lemma res_pack_inj : res_pack BQ BK BV = res_pack BQ' BK' BV' ->
  [/\ forall l (w : l.-tuple letter) h, (l < L)%N -> BQ w h = BQ' w h,
      forall l (w : l.-tuple letter) h, (l < L)%N -> BK w h = BK' w h &
      forall w, BV w = BV' w].
Proof.
move=> /matrixP e; split=> [l w h lL|l w h lL|w]; apply/matrixP => i j.
- by have := e i (enum_rank (inl (mkread w h lL, lshift d j))); rewrite !mxE enum_rankK (unsplitK (inl j)).
- by have := e i (enum_rank (inl (mkread w h lL, rshift d j))); rewrite !mxE enum_rankK (unsplitK (inr j)).
- by have := e i (enum_rank (inr (w, j))); rewrite !mxE enum_rankK.
Qed.

Lemma eq_res_pack :
  (forall l (w : l.-tuple letter) h, (l < L)%N -> BQ w h = BQ' w h) ->
  (forall l (w : l.-tuple letter) h, (l < L)%N -> BK w h = BK' w h) ->
  (forall w, BV w = BV' w) -> res_pack BQ BK BV = res_pack BQ' BK' BV'.
Proof.
move=> eQ eK eV; apply/matrixP => i c; rewrite !mxE.
case: (enum_val c) => [[x j]|[w j]]; last by rewrite eV.
by case: (split j) => j'; rewrite ?eQ ?eK ?ltn_ord.
Qed.

(* every matrix is packed *)
Lemma res_packE b (W : 'M[R]_(b, #|column|)) : exists CQ CK CV, W = res_pack CQ CK CV.
Proof.
pose blocks (q : 'I_d -> 'I_(d + d)) l (w : l.-tuple letter) h : 'M[R]_(b, d) :=
  if @idP (l < L)%N is ReflectT lL then \matrix_(i, j) W i (enum_rank (inl (mkread w h lL, q j))) else 0.
exists (blocks (@lshift d d)), (blocks (@rshift d d)), (fun w => \matrix_(i, j) W i (enum_rank (inr (w, j)))).
apply/matrixP => i c; rewrite !mxE -{1}[c]enum_valK.
case: (enum_val c) => [[[[t tL] [w h]] j]|[w j]]; last by rewrite mxE.
rewrite -{1}(splitK j) /blocks /=; case: (split j) => j' /=; case: {-}_ / idP => // tL';
  by rewrite mxE /mkread (bool_irrelevance tL' tL).
Qed.

(* a packed matrix times a column vector z, whose entries are named by the columns *)
Definition entry (z : 'cV[R]_#|column|) (c : column) : R := z (enum_rank c) 0.

Lemma res_pack_mul (z : 'cV[R]_#|column|) i :
  (res_pack BQ BK BV *m z) i 0 =
  \sum_(x : res_read H L)
   (\sum_j BQ (tagged x).1 (tagged x).2 i j * entry z (inl (x, lshift d j))
    + \sum_j BK (tagged x).1 (tagged x).2 i j * entry z (inl (x, rshift d j)))
  + \sum_w \sum_j BV w i j * entry z (inr (w, j)).
Proof.
rewrite mxE (reindex _ (onW_bij _ (@enum_rank_bij column))) /= big_sumType /=; congr (_ + _).
  transitivity (\sum_(x : res_read H L) \sum_(j < d + d)
      res_pack BQ BK BV i (enum_rank (inl (x, j))) * entry z (inl (x, j))).
    by rewrite pair_big; apply: eq_bigr => -[].
  apply: eq_bigr => x _; rewrite big_split_ord; congr (_ + _); apply: eq_bigr => j _ /=.
    by rewrite mxE enum_rankK (unsplitK (inl j)).
  by rewrite mxE enum_rankK (unsplitK (inr j)).
rewrite pair_big; apply: eq_bigr => -[w j] _ /=.
by rewrite mxE enum_rankK.
Qed.

End Pack.

Section System.
Variables (R : ringType) (H d din m L : nat).
Notation letter := (option 'I_H).
Variables (S : nat -> layer R H d m) (U : 'M[R]_(m, din)).

Definition res_Rall : 'M[R]_(m, #|res_column H d din L|) :=
  res_pack (fun l w h => res_wprod (values S) 0 w *m lQ (S l) h)
           (fun l w h => res_wprod (values S) 0 w *m lK (S l) h)
           (fun w : L.-tuple letter => res_wprod (values S) 0 w *m U).

Definition res_Wall (T : nat -> layer R H d din) : 'M[R]_(din, #|res_column H d din L|) :=
  res_pack (fun l w h => res_wprod (values T) 0 w *m lQ (T l) h)
           (fun l w h => res_wprod (values T) 0 w *m lK (T l) h)
           (fun w : L.-tuple letter => res_wprod (values T) 0 w).

Lemma res_matchesP (T : nat -> layer R H d din) E : res_matches L S U T E <-> E *m res_Rall = res_Wall T.
Proof.
rewrite /res_Rall /res_Wall mul_res_pack; split=> [[eQ eK eV]|/res_pack_inj[eQ eK eV]].
  by apply: eq_res_pack => [l w h lL|l w h lL|w]; rewrite mulmxA ?eQ ?eK ?eV.
split=> [l w h lL|l w h lL|w]; rewrite -mulmxA; first exact: eQ.
  exact: eK.
exact: eV.
Qed.

End System.
