(* The linear algebra of the attention-matching optimum: its three steps, in all sizes.               *)
(*                                                                                                    *)
(*   gauge_factor           equal products, of families X, Y and P, Q with left inverses for P and Q: *)
(*                          X_v = P_v G and Y_w = Q_w G^(-T) with one invertible G                    *)
(*   gauged G T             the target T with queries W_Q G and keys W_K G^(-T), G = G^(l,h)          *)
(*   readable L T           in every layer l and head h the M_w W_Q, |w| = l, stacked, have a left    *)
(*                          inverse, and the M_w W_K too: true of almost all targets if d <= d_in     *)
(*   solutions_factor       for such a target, attention-matching is matching of gauged G T for some  *)
(*                          invertible G: every solution of the attention-matching equations has      *)
(*                          E R_w R_Q = M_w W_Q G and E R_w R_K = M_w W_K G^(-T)                      *)
(*   through C P            the space of the p with C p in the space P                                *)
(*   side_by_side           if C_0, ..., C_(k-1) side by side are injective, P contains the direct    *)
(*                          sum of the C_i (through C_i P): its dimension is at least their sum       *)
(*   part P J               the elements of P whose rows outside J vanish                             *)
(*   part_supermodular      J |-> dim (part P J) is supermodular                                      *)
(*   room                   K sets of rows with dim (part P J_k) >= a, none of the rows in more than  *)
(*                          c of them: K a <= c dim P                                                 *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Emulation.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

(* Solutions factor *)

Lemma gauge_factor (R : comUnitRingType) (I J : finType) (a b d : nat) (X P : I -> 'M[R]_(a, d))
    (Y Q : J -> 'M[R]_(b, d)) (B : I -> 'M[R]_(d, a)) (C : J -> 'M[R]_(d, b)) :
  (forall v w, X v *m (Y w)^T = P v *m (Q w)^T) ->
  \sum_v B v *m P v = 1%:M -> \sum_w C w *m Q w = 1%:M ->
  exists G : 'M[R]_d, [/\ G \in unitmx, forall v, X v = P v *m G & forall w, Y w = Q w *m (invmx G)^T].
Proof.
move=> eXY BP CQ; pose g := \sum_w (Y w)^T *m (C w)^T; pose f := \sum_v B v *m X v.
have Xg v : X v *m g = P v.
  rewrite mulmx_sumr -[RHS]mulmx1 -(trmx1 _ d) -CQ raddf_sum mulmx_sumr; apply: eq_bigr => w _.
  by rewrite /= trmx_mul !mulmxA eXY.
have fg : f *m g = 1%:M by rewrite mulmx_suml -BP; apply: eq_bigr => v _; rewrite -mulmxA Xg.
have [uf ug] := mulmx1_unit fg.
have ginv : invmx g = f by rewrite -[RHS](mulmxK ug) fg mul1mx.
exists f; split=> // [v|w]; first by rewrite -Xg -ginv mulmxK.
apply: trmx_inj; rewrite trmx_mul trmxK; apply: (can_inj (mulKmx uf)); rewrite mulKVmx //.
rewrite mulmx_suml -[RHS]mul1mx -BP mulmx_suml; apply: eq_bigr => v _.
by rewrite -!mulmxA eXY.
Qed.

Section Factor.
Variables (R : comUnitRingType) (H d din L : nat).
Implicit Types (T : nat -> layer R H d din) (G : nat -> 'I_H -> 'M[R]_d).

Definition gauged G T (l : nat) : layer R H d din :=
  Layer (fun h => lQ (T l) h *m G l h) (fun h => lK (T l) h *m (invmx (G l h))^T) (lV (T l)).

Definition readable T : Prop := forall l h, (l < L)%N ->
  exists B C : l.-tuple 'I_H -> 'M[R]_(d, din),
    \sum_w B w *m (wprod (values T) 0 w *m lQ (T l) h) = 1%:M /\
    \sum_w C w *m (wprod (values T) 0 w *m lK (T l) h) = 1%:M.

Theorem solutions_factor T m (S : nat -> layer R H d m) (U : 'M[R]_(m, din)) (E : 'M[R]_(din, m)) :
  readable T -> matches_logits L S U T E <->
  exists G, (forall l h, (l < L)%N -> G l h \in unitmx) /\ matches L S U (gauged G T) E.
Proof.
move=> readT; split=> [[eA eU]|[G [uG [eQ eK eU]]]]; last first.
  split=> [l w v h lL|//]; rewrite eQ // eK //= -/(values _) !mulmxA trmx_mul trmxK !mulmxA.
  by rewrite mulmxK ?uG.
have /(@fin_all_exists [finType of 'I_L * 'I_H]) [G eG] (x : 'I_L * 'I_H) : exists G : 'M[R]_d,
    [/\ G \in unitmx,
      forall w : x.1.-tuple 'I_H, E *m wprod (values S) 0 w *m lQ (S x.1) x.2
        = wprod (values T) 0 w *m lQ (T x.1) x.2 *m G &
      forall w : x.1.-tuple 'I_H, E *m wprod (values S) 0 w *m lK (S x.1) x.2
        = wprod (values T) 0 w *m lK (T x.1) x.2 *m (invmx G)^T].
  case: x => l h /=; have [B [C [BP CQ]]] := readT l h (ltn_ord l).
  by apply: gauge_factor BP CQ => v w; apply: eA.
exists (fun l h => if insub l is Some l' then G (l', h) else 1%:M).
split=> [l h lL|]; first by rewrite insubT; have [] := eG (Sub l lL, h).
split=> [l w h lL|l w h lL|//] /=; rewrite insubT mulmxA.
  by have [_ -> _] := eG (Sub l lL, h).
by have [_ _ ->] := eG (Sub l lL, h).
Qed.

End Factor.

(* over a field one word with M_w W_Q and M_w W_K of rank d is enough *)
Lemma readable_rank (F : fieldType) (H d din L : nat) (T : nat -> layer F H d din) :
  (forall l h, (l < L)%N -> exists w : l.-tuple 'I_H,
     row_full (wprod (values T) 0 w *m lQ (T l) h) && row_full (wprod (values T) 0 w *m lK (T l) h)) ->
  readable L T.
Proof.
move=> rankT l h /(rankT l h)[w /andP[fQ fK]].
pose pick (A : 'M[F]_(d, din)) (v : l.-tuple 'I_H) := if v == w then A else 0.
have pickE A (Z : l.-tuple 'I_H -> 'M[F]_(din, d)) : \sum_v pick A v *m Z v = A *m Z w.
  rewrite (bigD1 w) //= /pick eqxx big1 ?addr0 // => v /negPf ->; exact: mul0mx.
by exists (pick (pinvmx (wprod (values T) 0 w *m lQ (T l) h))),
  (pick (pinvmx (wprod (values T) 0 w *m lK (T l) h))); rewrite !pickE !mulVpmx.
Qed.

(* ... and there are such targets at every shape with d <= d_in *)
Lemma readable_ex (F : fieldType) (H d din L : nat) : (d <= din)%N ->
  exists T : transformer F H d din, readable L (layers T).
Proof.
move=> dd; pose one a b (_ : nat) (_ : 'I_H) : 'M[F]_(a, b) := pid_mx d.
pose T := Transformer (one din d) (one din d) (one din d) (one d din).
have oneE l0 n h : wprod (values (layers T)) l0 (nseq n h) *m pid_mx d = pid_mx d :> 'M_(din, d).
  elim: n l0 => [|n IH] l0 /=; first by rewrite mul1mx.
  by rewrite -mulmxA IH /values /= /one -mulmxA !mul_pid_mx !minnn (minn_idPr dd) !minnn.
exists T; apply: readable_rank => l h _; exists (nseq_tuple l h).
by rewrite /= /one oneE /row_full rank_pid_mx // eqxx.
Qed.

(* Spaces of matrices *)

Section Room.
Variables (F : fieldType) (N n : nat).
Implicit Types (P : {vspace 'M[F]_(N, n)}) (J : {set 'I_N}).

Definition through b (C : 'M[F]_(N, b)) P : {vspace 'M[F]_(b, n)} := (linfun (mulmx C) @^-1: P)%VS.

Lemma mem_through b (C : 'M[F]_(N, b)) P p : (p \in through C P) = (C *m p \in P).
Proof. by rewrite -memv_preim lfunE. Qed.

(* the condition says that [C_0 ... C_(k-1)] is injective *)
Theorem side_by_side k b (C : 'I_k -> 'M[F]_(N, b)) P :
  (forall p : 'I_k -> 'cV[F]_b, \sum_i C i *m p i = 0 -> forall i, p i = 0) ->
  (\sum_i \dim (through (C i) P) <= \dim P)%N.
Proof.
move=> inj; pose U i := (linfun (mulmx (C i)) @: through (C i) P)%VS.
have inj_n (p : 'I_k -> 'M[F]_(b, n)) : \sum_i C i *m p i = 0 -> forall i, p i = 0.
  move=> sum0 i; apply/matrixP => r j.
  have /inj/(_ i)/matrixP/(_ r 0) : \sum_i C i *m col j (p i) = 0; last by rewrite !mxE.
  rewrite -[RHS](mul0mx _ (delta_mx j 0)) -sum0 mulmx_suml; apply: eq_bigr => i' _.
  by rewrite colE mulmxA.
have ker0 i : lker (linfun (mulmx (C i)) : 'Hom(matrix_vectType F b n, matrix_vectType F N n)) = 0%VS.
  apply/eqP; rewrite -subv0; apply/subvP => p; rewrite memv_ker lfunE memv0 /= => /eqP e.
  have := inj_n (fun i' => if i' == i then p else 0) _ i; rewrite eqxx => -> //.
  rewrite (bigD1 i) //= eqxx e add0r big1 // => i' /negPf ->; exact: mulmx0.
have <- : (\sum_i \dim (U i) = \sum_i \dim (through (C i) P))%N.
  by apply: eq_bigr => i _; rewrite limg_dim_eq // ker0 capv0.
have dU : directv (\sum_i U i).
  apply/directv_sum_independent => us usU sum0 i _.
  have /fin_all_exists[p eP] i' : exists p, us i' = C i' *m p.
    by have /memv_imgP[p _ ->] := usU i' isT; exists p; rewrite lfunE.
  rewrite eP (inj_n p) ?mulmx0 // -[RHS]sum0; apply: eq_bigr => i' _; exact/esym/eP.
have -> : (\sum_i \dim (U i) = \dim (\sum_i U i))%N by move/directvP: dU => /= ->.
apply: dimvS; apply/subv_sumP => i _; apply/subvP => _ /memv_imgP[p pP ->].
by rewrite lfunE -mem_through.
Qed.

(* the elements of P whose rows outside J vanish *)
Definition part P J : {vspace 'M[F]_(N, n)} :=
  (P :&: lker (linfun (mulmx (diag_mx (\row_i (i \notin J)%:R)))))%VS.

Lemma mem_part P J p :
  reflect (p \in P /\ forall i, i \notin J -> row i p = 0) (p \in part P J).
Proof.
rewrite memv_cap memv_ker lfunE /=; apply: (iffP andP) => -[pP]; last first.
  move=> out; split=> //; apply/eqP/matrixP => i j; rewrite mul_diag_mx !mxE.
  by case: (boolP (i \in J)) => [_|/out/rowP/(_ j)]; rewrite ?mul0r // !mxE => ->; rewrite mulr0.
move=> /eqP/matrixP out; split=> // i iJ; apply/rowP => j; have := out i j.
by rewrite mul_diag_mx !mxE iJ mul1r.
Qed.

Lemma partS P J J' : J \subset J' -> (part P J <= part P J')%VS.
Proof.
move=> /subsetP sJ; apply/subvP => p /mem_part[pP out]; apply/mem_part; split=> // i iJ'.
by apply: out; apply: contra iJ' => /sJ.
Qed.

Lemma partI P J J' : (part P J :&: part P J')%VS = part P (J :&: J').
Proof.
apply/vspaceP => p; rewrite memv_cap; apply/andP/mem_part => [[/mem_part[pP o] /mem_part[_ o']]|[pP o]].
  by split=> // i; rewrite inE negb_and => /orP[/o|/o'].
by split; apply/mem_part; split=> // i iJ; apply: o; rewrite inE negb_and iJ ?orbT.
Qed.

Theorem part_supermodular P J J' :
  (\dim (part P J) + \dim (part P J') <= \dim (part P (J :|: J')) + \dim (part P (J :&: J')))%N.
Proof.
rewrite -dimv_sum_cap partI leq_add2r; apply: dimvS.
by rewrite subv_add !partS ?subsetUl ?subsetUr.
Qed.

(* the rows before t, and what row t adds *)
Let before (t : nat) : {set 'I_N} := [set i : 'I_N | (i < t)%N].
Let added P (t : nat) : nat := (\dim (part P (before t.+1)) - \dim (part P (before t)))%N.

Lemma before_le P t : (\dim (part P (before t)) <= \dim (part P (before t.+1)))%N.
Proof. by apply/dimvS/partS/subsetP => i; rewrite !inE => /leqW. Qed.

Lemma part0 P : \dim (part P set0) = 0%N.
Proof.
apply/eqP; rewrite dimv_eq0 -subv0; apply/subvP => p /mem_part[_ o]; rewrite memv0; apply/eqP.
by apply/row_matrixP => i; rewrite o ?inE // row0.
Qed.

Lemma before0 : before 0 = set0. Proof. by apply/setP => i; rewrite !inE. Qed.
Lemma beforeN : before N = setT. Proof. by apply/setP => i; rewrite !inE ltn_ord. Qed.

Lemma sum_added P : (\sum_(i < N) added P i = \dim P)%N.
Proof.
have step t : (\sum_(i < t) added P i = \dim (part P (before t)))%N.
  elim: t => [|t IH]; first by rewrite big_ord0 before0 part0.
  by rewrite big_ord_recr /= IH subnKC // before_le.
rewrite step; congr (\dim _); apply/vspaceP => p; apply/mem_part/idP => [[]//|pP].
by split=> // i; rewrite beforeN inE.
Qed.

Lemma part_le P J : (\dim (part P J) <= \sum_(i < N) (i \in J) * added P i)%N.
Proof.
have step t (tN : (t <= N)%N) :
    (\dim (part P (J :&: before t)) <= \sum_(i < N | (i < t)%N) (i \in J) * added P i)%N.
  elim: t tN => [|t IH] tN; first by rewrite before0 setI0 part0.
  rewrite (bigD1 (Ordinal tN)) //= addnC.
  under eq_bigl => i do rewrite ltnS andbC -val_eqE /= -ltn_neqAle.
  case: (boolP (Ordinal tN \in J)) => tJ; last first.
    rewrite mul0n addn0; apply: leq_trans (IH (ltnW tN)); apply: dimvS; apply: partS.
    apply/subsetP => i; rewrite !inE => /andP[iJ it]; rewrite iJ /= ltn_neqAle -ltnS it andbT.
    by apply: contraNneq tJ => e; rewrite (_ : Ordinal tN = i) //; apply: val_inj.
  rewrite mul1n /added -(leq_add2r (\dim (part P (before t)))) -addnA subnK ?before_le //.
  apply: leq_trans (part_supermodular _ _ _) _; rewrite addnC leq_add //.
    apply: leq_trans (IH (ltnW tN)); apply/dimvS/partS/subsetP => i.
    by rewrite !inE => /andP[/andP[-> _] ->].
  by apply/dimvS/partS/subsetP => i; rewrite !inE => /orP[/andP[_ ->]|/leqW].
have := step N (leqnn N); rewrite beforeN setIT => le; apply: leq_trans le _.
by rewrite (eq_bigl xpredT) // => i; rewrite ltn_ord.
Qed.

Theorem room P K a c (J : 'I_K -> {set 'I_N}) :
  (forall k, a <= \dim (part P (J k)))%N -> (forall i, #|[set k | i \in J k]| <= c)%N ->
  (K * a <= c * \dim P)%N.
Proof.
move=> le_a le_c; rewrite -(sum_added P) big_distrr /=.
apply: (@leq_trans (\sum_(k < K) \sum_(i < N) (i \in J k) * added P i)%N).
  rewrite -{1}[K]card_ord -sum_nat_const; apply: leq_sum => k _.
  exact: leq_trans (le_a k) (part_le P (J k)).
rewrite exchange_big; apply: leq_sum => i _; rewrite -big_distrl leq_mul2r /=; apply/orP; right.
apply: leq_trans (le_c i); rewrite -sum1_card [X in (_ <= X)%N]big_mkcond; apply: leq_sum => k _.
by rewrite inE; case: (i \in J k).
Qed.

End Room.
