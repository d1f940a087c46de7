(* Lower bounds on the embedding dimension m in the shared-attention model.       *)
(*                                                                                *)
(* The host's value matrices V are fixed, untied or tied; the targets are untied  *)
(* transformers of width din and head dimension d >= 1. What is bounded is the    *)
(* word equations E R_w U = M_w for all words w of length L (shared_matches), or  *)
(* equivalently, by the spanning lemma, equal outputs for every row-stochastic    *)
(* attention.                                                                     *)
(*                                                                                *)
(*   weight c l0 w        the product of the scalars c along the word w           *)
(*   looped T             T is a looped (tied) target                             *)
(*   diag_target c j      values c l h on coordinate j and zero elsewhere: a      *)
(*                        transformer of any head dimension d >= 1                *)
(*                                                                                *)
(* fixed_unembedding_bound   U fixed, only E free:      din * H^L <= m            *)
(* free_bound                E and U both free:          H^L <= m^2               *)
(* shared_lower_bound        thm:lower_bound_utf (any din >= 1): equal outputs    *)
(*                           for row-stochastic attention need H^L <= m^2         *)
(* shared_lower_bound_tied   the same for looped hosts and untied targets         *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Spanning.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Weight.
Variables (R : ringType) (H : nat).

Fixpoint weight (c : nat -> 'I_H -> R) (l0 : nat) (w : seq 'I_H) : R :=
  if w is h :: w' then c l0 h * weight c l0.+1 w' else 1.

(* the scalars that follow one word w *)
Definition follow (w : seq 'I_H) (l : nat) (h : 'I_H) : R := (h == nth h w l)%:R.

Lemma weight_follow_drop (w v : seq 'I_H) l0 :
  (l0 + size v)%N = size w -> weight (follow w) l0 v = (v == drop l0 w)%:R.
Proof.
elim: v l0 => [|h v IH] l0 /= lw; first by rewrite drop_oversize // -lw addn0.
have l0w : (l0 < size w)%N by rewrite -lw addnS ltnS leq_addr.
by rewrite IH ?addSnnS // [drop l0 w](drop_nth h) // /follow eqseq_cons -natrM mulnb.
Qed.

Lemma weight_follow (w v : seq 'I_H) : size v = size w -> weight (follow w) 0 v = (v == w)%:R.
Proof. by move=> vw; rewrite weight_follow_drop ?drop0. Qed.

Lemma wprod_scalar (c : nat -> 'I_H -> R) l0 w :
  wprod (fun l h => (c l h)%:M : 'M_1) l0 w = (weight c l0 w)%:M.
Proof. by elim: w l0 => //= h w IH l0; rewrite IH -scalar_mxM. Qed.

End Weight.

(* the paper's looped targets: every layer has the same matrices *)
Definition looped (R : ringType) H d din (T : transformer R H d din) : Prop := forall l h,
  [/\ WQ T l h = WQ T 0 h, WK T l h = WK T 0 h, WV T l h = WV T 0 h & WO T l h = WO T 0 h].

Lemma looped_values (R : ringType) H d din (T : transformer R H d din) l h :
  looped T -> values (layers T) l h = values (layers T) 0 h.
Proof. by move=> loop; rewrite /values /=; have [_ _ -> ->] := loop l h. Qed.

Section DiagTarget.
Variables (R : comRingType) (H d din : nat).

(* every head multiplies coordinate j by a scalar and forgets the others *)
Definition diag_target (c : nat -> 'I_H -> R) (i : 'I_d) (j : 'I_din) : transformer R H d din :=
  Transformer (fun _ _ => 0) (fun _ _ => 0)
    (fun l h => c l h *: delta_mx j i) (fun _ _ => delta_mx i j).

Lemma diag_targetE c i j l h :
  values (layers (diag_target c i j)) l h = c l h *: delta_mx j j.
Proof. by rewrite /values /= -scalemxAl mul_delta_mx. Qed.

Lemma wprod_diag_target c i j l0 w :
  delta_mx 0 j *m wprod (values (layers (diag_target c i j))) l0 w = weight c l0 w *: delta_mx (0 : 'I_1) j.
Proof.
elim: w l0 => [|h w IH] l0; first by rewrite /= mulmx1 scale1r.
rewrite wprod_cons diag_targetE -scalemxAl -scalemxAr mulmxA mul_delta_mx IH.
by rewrite scalerA.
Qed.

Lemma looped_diag_target (c : 'I_H -> R) i j : looped (diag_target (fun=> c) i j).
Proof. by []. Qed.

End DiagTarget.

Section Bounds.
Variables (F : fieldType) (H d din m L : nat).
Variable V : nat -> 'I_H -> 'M[F]_m.
Hypothesis d_gt0 : (0 < d)%N.
Notation words := (L.-tuple 'I_H).

(* Each pair (word, coordinate) has its own target, and for it a row of E that meets the
   columns of all the R_w U in that one column alone. *)
Theorem fixed_unembedding_bound (U : 'M[F]_(m, din)) :
  (forall T : transformer F H d din, exists E, shared_matches L V (values (layers T)) E U) ->
  (din * H ^ L <= m)%N.
Proof.
move=> univ; pose I := [finType of words * 'I_din].
have /fin_all_exists[x xP] (p : I) : exists x : 'rV[F]_m, forall v : words,
    x *m wprod V 0 v *m U = (v == p.1)%:R *: delta_mx 0 p.2.
  case: p => w j /=; have [E EP] := univ (diag_target (follow F w) (Ordinal d_gt0) j).
  exists (delta_mx 0 j *m E) => v; rewrite -(weight_follow F) ?size_tuple //.
  by rewrite -(wprod_diag_target _ (Ordinal d_gt0)) -EP !mulmxA.
pose A := \matrix_(p < #|I|) x (enum_val p).
pose B := \matrix_(i < m, q < #|I|) (wprod V 0 (enum_val q).1 *m U) i (enum_val q).2.
have /mulmx1_min : A *m B = 1%:M; last by rewrite card_prod card_tuple !card_ord mulnC.
apply/matrixP => p q.
transitivity ((x (enum_val p) *m wprod V 0 (enum_val q).1 *m U) 0 (enum_val q).2).
  by rewrite -mulmxA !mxE; apply: eq_bigr => i _; rewrite !mxE.
by rewrite xP !mxE eqxx -natrM mulnb -xpair_eqE -!surjective_pairing (inj_eq enum_val_inj) eq_sym.
Qed.

(* x R y is a scalar product of the entries of R with the entries of x^T y^T *)
Lemma bilinear_vec (x : 'rV[F]_m) (y : 'cV[F]_m) (P : 'M[F]_m) :
  (mxvec P *m (mxvec (x^T *m y^T))^T) 0 0 = (x *m P *m y) 0 0.
Proof.
rewrite !mxE (reindex _ (curry_mxvec_bij _ _)) /=.
under [in RHS]eq_bigr => j _ do rewrite !mxE mulr_suml.
rewrite exchange_big pair_big; apply: eq_bigr => -[i j] _ /=.
by rewrite !mxE !mxvecE mxE big_ord1 !mxE mulrCA mulrA.
Qed.

(* E and U both free: the H^L matrices R_w are linearly independent in dimension m^2. *)
Theorem free_bound : (0 < din)%N ->
  (forall T : transformer F H d din, exists E U, shared_matches L V (values (layers T)) E U) ->
  (H ^ L <= m ^ 2)%N.
Proof.
move=> din_gt0 univ; pose j := Ordinal din_gt0.
have /fin_all_exists[x xP] (w : words) : exists x : 'cV[F]_(m * m),
    forall v : words, (mxvec (wprod V 0 v) *m x) 0 0 = (v == w)%:R.
  have [E [U EU]] := univ (diag_target (follow F w) (Ordinal d_gt0) j).
  pose x : 'rV_m := delta_mx 0 j *m E; pose y : 'cV_m := U *m delta_mx j 0.
  exists (mxvec (x^T *m y^T))^T => v; rewrite bilinear_vec -(weight_follow F) ?size_tuple //.
  have -> : x *m wprod V 0 v *m y = delta_mx 0 j *m (E *m wprod V 0 v *m U) *m delta_mx j 0.
    by rewrite !mulmxA.
  by rewrite EU wprod_diag_target -scalemxAl mul_delta_mx !mxE !eqxx mulr1.
pose A := \matrix_(v < #|{: words}|) mxvec (wprod V 0 (enum_val v)).
pose B := \matrix_(i < m * m, w < #|{: words}|) x (enum_val w) i 0.
have /mulmx1_min : A *m B = 1%:M; last by rewrite card_tuple card_ord mulnn.
apply/matrixP=> v w; rewrite !mxE -(inj_eq enum_val_inj) -xP mxE.
by apply: eq_bigr => k _; rewrite !mxE.
Qed.

End Bounds.

Section Functional.
Variables (F : numFieldType) (H d din m L : nat).

(* thm:lower_bound_utf, for every width din >= 1: with E and U both free and the attention
   matrices given, a host that reproduces every target has m >= H^(L/2). *)
Theorem shared_lower_bound (V : nat -> 'I_H -> 'M[F]_m) : (0 < d)%N -> (0 < din)%N ->
  (forall T : transformer F H d din, exists E U,
    shared_emulates L V (values (layers T)) E U (@row_stochastic F)) ->
  (H ^ L <= m ^ 2)%N.
Proof.
move=> d_gt0 din_gt0 univ; apply: (@free_bound _ _ d din m L V) => // T.
by have [E [U em]] := univ T; exists E, U; apply/spanning_lemma_stochastic.
Qed.

Corollary shared_lower_bound_tied (V : 'I_H -> 'M[F]_m) : (0 < d)%N -> (0 < din)%N ->
  (forall T : transformer F H d din, exists E U,
    shared_emulates L (fun=> V) (values (layers T)) E U (@row_stochastic F)) ->
  (H ^ L <= m ^ 2)%N.
Proof. exact: shared_lower_bound. Qed.

(* With U fixed the bound is din * H^L. *)
Theorem shared_fixed_unembedding_bound (V : nat -> 'I_H -> 'M[F]_m) (U : 'M[F]_(m, din)) :
  (0 < d)%N ->
  (forall T : transformer F H d din, exists E,
    shared_emulates L V (values (layers T)) E U (@row_stochastic F)) ->
  (din * H ^ L <= m)%N.
Proof.
move=> d_gt0 univ; apply: (@fixed_unembedding_bound _ _ d din m L V d_gt0 U) => T.
by have [E em] := univ T; exists E; apply/spanning_lemma_stochastic.
Qed.

End Functional.
