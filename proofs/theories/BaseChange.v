(* Ranks modulo a prime, and the linear test for attention-matching by a rank.                             *)
(*                                                                                                         *)
(*   full_rank_modulo       integer matrix of full column rank modulo a prime: so over every field of      *)
(*                          characteristic 0                                                               *)
(*   universal_modulo       an integer host whose R_all has rank M modulo a prime is universal by matching *)
(*   linear_test            three linear equations with gauges C are enough for attention-matching         *)
(*   test_column, test_matrix, linear_test_rank                                                            *)
(*                          they are solvable for every target if the test matrix has full rank            *)
(*   orthogonal_det         a square matrix with A^T A = 1 has determinant 1 or -1                         *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words MatchingSystem Emulation Decision.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Theorem orthogonal_det (R : idomainType) m n (A : 'M[R]_(m, n)) (e : m = n) : A^T *m A = 1%:M ->
  \det (castmx (e, erefl n) A) = 1 \/ \det (castmx (e, erefl n) A) = -1.
Proof.
move: A; case: _ / e => A; rewrite castmx_id => /(congr1 (@determinant R m)).
rewrite det_mulmx det_tr det1 -expr2 => /eqP.
by rewrite sqrf_eq1 => /orP[] /eqP ->; [left | right].
Qed.

Theorem full_rank_modulo (F : numFieldType) p m n (A : 'M[int]_(m, n)) : prime p ->
  \rank (map_mx intr A : 'M['F_p]_(m, n)) = n -> \rank (map_mx intr A : 'M[F]_(m, n)) = n.
Proof.
move=> p_pr rp; have /row_fullP[B BA] : row_full (map_mx intr A : 'M['F_p]_(m, n)).
  by rewrite /row_full rp.
pose N := map_mx (fun x : 'F_p => (x : nat)%:Z) B *m A.
have lift : map_mx intr (map_mx (fun x : 'F_p => (x : nat)%:Z) B) = B.
  by apply/matrixP => i j; rewrite !mxE -pmulrn natr_Zp.
have N1 : map_mx intr N = 1%:M :> 'M['F_p]_n by rewrite map_mxM /= lift.
have detN : \det N != 0.
  apply/eqP => N0; have := oner_neq0 [ringType of 'F_p].
  by rewrite -(det1 _ n) -N1 det_map_mx /= N0 rmorph0 eqxx.
have NF : (map_mx intr N : 'M[F]_n) \in unitmx by rewrite unitmxE det_map_mx unitfE intr_eq0.
apply/eqP; rewrite eqn_leq rank_leq_col -{1}(mxrank_unit NF) map_mxM /=; exact: mxrankM_maxr.
Qed.

Section Integers.
Variables (H d din m L : nat) (S : nat -> layer [ringType of int] H d m) (U : 'M[int]_(m, din)).
Definition over (R : ringType) (l : nat) : layer R H d m :=
  Layer (fun h => map_mx intr (lQ (S l) h)) (fun h => map_mx intr (lK (S l) h)) (fun h => map_mx intr (lV
    (S l) h)).
Lemma Rall_over (R : ringType) : Rall L (over R) (map_mx intr U) = map_mx intr (Rall L S U).
Proof.
have wp w l : wprod (values (over R)) l w = map_mx intr (wprod (values S) l w).
  by elim: w l => [|h w IH] l /=; rewrite ?map_mx1 // map_mxM IH.
rewrite /Rall (map_pack [rmorphism of intr]).
by apply: eq_pack => [l w h _|l w h _|w]; rewrite map_mxM -wp.
Qed.
Theorem universal_modulo (F : numFieldType) p : prime p ->
  \rank (Rall L (over [ringType of 'F_p]) (map_mx intr U)) = matching_dimension H L d din ->
  universal_by_matching L (over F) (map_mx intr U).
Proof.
move=> p_pr; rewrite Rall_over -card_column => rp T.
have full : \rank (Rall L (over F) (map_mx intr U)) = matching_dimension H L d din.
  by rewrite Rall_over (full_rank_modulo F p_pr rp) card_column.
by have [E EW] := full_rank_any_rhs full (Wall L (layers T)); exists E; apply/matchesP.
Qed.
End Integers.

(* the linear test: any gauge C for each layer and head *)
Section LinearTest.
Variables (H d din m L : nat).

Theorem linear_test (R : comRingType) (S : nat -> layer R H d m) (U : 'M[R]_(m, din)) (T : nat -> layer R
  H d din)
    (C : nat -> 'I_H -> 'M[R]_(din, d)) (E : 'M[R]_(din, m)) :
  (forall l (w : l.-tuple 'I_H) h, (l < L)%N -> E *m wprod (values S) 0 w *m lK (S l) h = wprod (values
    T) 0 w *m C l h) ->
  (forall l (w : l.-tuple 'I_H) h, (l < L)%N ->
     E *m wprod (values S) 0 w *m (lQ (S l) h *m (C l h)^T) = wprod (values T) 0 w *m form T l h) ->
  (forall w : L.-tuple 'I_H, E *m wprod (values S) 0 w *m U = wprod (values T) 0 w) ->
  matches_logits L S U T E.
Proof.
move=> eK eQ eU; split=> // l w v h lL; rewrite eK // trmx_mul -!mulmxA (mulmxA (lQ _ _)) !mulmxA.
by rewrite -[_ *m lQ _ _ *m _]mulmxA eQ // /form trmx_mul !mulmxA.
Qed.

Definition test_column := [finType of word H L * 'I_din + word H L * 'I_d + L.-tuple 'I_H * 'I_din].
Definition test_matrix (F : fieldType) (S : nat -> layer F H d m) (U : 'M[F]_(m, din)) (C : nat -> 'I_H
  -> 'M[F]_(din, d)) :
    'M[F]_(m, #|test_column|) :=
  \matrix_(i, c) match (enum_val c : test_column) with
  | inl (inl (w, j)) => (wprod (values S) 0 (prew w) *m (lQ (S (tag w)) (lastw w) *m (C (tag w) (lastw
    w))^T)) i j
  | inl (inr (w, j)) => (wprod (values S) 0 (prew w) *m lK (S (tag w)) (lastw w)) i j
  | inr (w, j) => (wprod (values S) 0 w *m U) i j end.

Theorem linear_test_rank (F : fieldType) (S : nat -> layer F H d m) (U : 'M[F]_(m, din)) (C : nat -> 'I_H
  -> 'M[F]_(din, d)) :
  \rank (test_matrix S U C) = #|test_column| ->
  forall T : transformer F H d din, exists E : 'M[F]_(din, m), matches_logits L S U (layers T) E.
Proof.
move=> full T; have /row_fullP[B BA] : row_full (test_matrix S U C) by rewrite /row_full full.
pose W : 'M[F]_(din, #|test_column|) := \matrix_(i, c) match (enum_val c : test_column) with
  | inl (inl (w, j)) => (wprod (values (layers T)) 0 (prew w) *m form (layers T) (tag w) (lastw w)) i j
  | inl (inr (w, j)) => (wprod (values (layers T)) 0 (prew w) *m C (tag w) (lastw w)) i j
  | inr (w, j) => wprod (values (layers T)) 0 w i j end.
have EW : W *m B *m test_matrix S U C = W by rewrite -mulmxA BA mulmx1.
have at_c i c : (W *m B *m test_matrix S U C) i (enum_rank c) = W i (enum_rank c) by rewrite EW.
exists (W *m B); apply: (linear_test (C := C)) => [l w h lL|l w h lL|w]; apply/matrixP => i j.
- have := at_c i (inl (inr (mkword w h lL, j))).
  rewrite [RHS]mxE mxE enum_rankK; under eq_bigr => k _ do rewrite [test_matrix _ _ _ _ _]mxE enum_rankK.
  rewrite (mkwordK w h lL (fun l (w : l.-tuple 'I_H) h => wprod (values (layers T)) 0 w *m C l h)) => <-.
  rewrite -mulmxA mxE; apply: eq_bigr => k _.
  by rewrite (mkwordK w h lL (fun l (w : l.-tuple 'I_H) h => wprod (values S) 0 w *m lK (S l) h)).
- have := at_c i (inl (inl (mkword w h lL, j))).
  rewrite [RHS]mxE mxE enum_rankK; under eq_bigr => k _ do rewrite [test_matrix _ _ _ _ _]mxE enum_rankK.
  rewrite (mkwordK w h lL (fun l (w : l.-tuple 'I_H) h => wprod (values (layers T)) 0 w *m form (layers
    T) l h)) => <-.
  rewrite -mulmxA mxE; apply: eq_bigr => k _.
  by rewrite (mkwordK w h lL (fun l (w : l.-tuple 'I_H) h => wprod (values S) 0 w *m (lQ (S l) h *m (C l
    h)^T))).
have := at_c i (inr (w, j)).
rewrite [RHS]mxE mxE enum_rankK; under eq_bigr => k _ do rewrite [test_matrix _ _ _ _ _]mxE enum_rankK.
by move=> <-; rewrite -mulmxA mxE.
Qed.
End LinearTest.
