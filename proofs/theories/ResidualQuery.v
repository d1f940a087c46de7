(* Hosts for residual streams by attention-matching: m = q sum_{t<L} (H+1)^t + d_in (H+1)^L.          *)
(*                                                                            *)
(* Coordinates: for each layer t and word w of length t over H+1 letters q readings, for each word of  
    *)
(* length L d_in outputs. R_V^(l,h) moves what stands at a word with letter h in place l to the word   
    *)
(* with the stream's letter there. Queries and keys of layer l are fixed combinations, CQ l h and CK l
    h, *)
(* of the readings of layer l at the word of the stream's letters alone, and of the outputs there.     
     *)
(*                                                                            *)
(*   res_matches_logits   attention-matching with a residual stream                                  *)
(*   reading_host, reading_out   the host                                                           *)
(*   reading_serves       readings Y serve a target if ([Y|1] CQ)([Y|1] CK)^T = W_Q W_K^T             *)
(*   residual_key_serves  d = d_in, q = H d_in: all targets; m = d_in (2 (H+1)^L - 1)                 
    *)
(*   residual_query_serves   keys W_K G^(-T) and queries W_Q G as readings: all targets with invertible
    G *)
(*                        for which the combinations of queries that are read are W_Q G               
    *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Emulation Residual.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

Section Notion.
Variables (R : ringType) (H d din m L : nat) (S : nat -> layer R H d m) (U : 'M[R]_(m, din)).
Definition res_matches_logits (T : nat -> layer R H d din) (E : 'M[R]_(din, m)) : Prop :=
  (forall l (w v : l.-tuple (option 'I_H)) h, (l < L)%N ->
     (E *m res_wprod (values S) 0 w *m lQ (S l) h) *m (E *m res_wprod (values S) 0 v *m lK (S l) h)^T
     = (res_wprod (values T) 0 w *m lQ (T l) h) *m (res_wprod (values T) 0 v *m lK (T l) h)^T) /\
  (forall w : L.-tuple (option 'I_H), E *m res_wprod (values S) 0 w *m U = res_wprod (values T) 0 w).
End Notion.

Section Host.
Variables (R : comRingType) (H d din L q : nat) (CQ CK : nat -> 'I_H -> 'M[R]_(q + din, d)).
Notation letter := (option 'I_H).
Definition reading_coord := [finType of {t : 'I_L & t.-tuple letter} * 'I_q + L.-tuple letter * 'I_din].
Notation m := #|reading_coord|.
Lemma card_reading_coord : m = (q * (\sum_(t < L) H.+1 ^ t) + din * H.+1 ^ L)%N.
Proof.
rewrite card_sum !card_prod !card_ord card_tagged sumnE big_map big_enum card_tuple card_option
    card_ord /=.
rewrite mulnC [(_ * din)%N]mulnC; congr (q * _ + _)%N; apply: eq_bigr => t _.
by rewrite card_tuple card_option card_ord.
Qed.

Definition put t (u : t.-tuple letter) l (h : 'I_H) : option (t.-tuple letter) :=
  if (l < t)%N && (nth None u l == None) then Some (insubd u (set_nth None u l (Some h))) else None.
Definition source l h (y : reading_coord) : option reading_coord := match y with
  | inl (x, j) => omap (fun u => inl (existT _ (tag x) u, j)) (put (tagged x) l h)
  | inr (u, j) => omap (fun u => inr (u, j)) (put u l h) end.
Definition reading_out : 'M[R]_(m, din) :=
  \matrix_(x, k) (if (enum_val x : reading_coord) is inr (u, j) then all (pred1 None) u && (j == k)
      else false)%:R.
Definition pick_reading (l : nat) : 'M[R]_(m, q) := \matrix_(x, k)
  (if (enum_val x : reading_coord) is inl (y, j) then [&& (tag y : nat) == l, all (pred1 None) (tagged
      y) & j == k] else false)%:R.
Definition pick (l : nat) : 'M[R]_(m, q + din) := row_mx (pick_reading l) reading_out.
Definition reading_host (l : nat) : layer R H d m := Layer
  (fun h => pick l *m CQ l h) (fun h => pick l *m CK l h)
  (fun h => \matrix_(x, y) (source l h (enum_val y) == Some (enum_val x))%:R).
Variables (T : transformer R H d din) (Y : nat -> 'M[R]_(din, q)).
Notation M w := (res_wprod (values (layers T)) 0 w).
Definition reading_embedding : 'M[R]_(din, m) := \matrix_(i, x) match (enum_val x : reading_coord) with
  | inl (y, j) => (M (tagged y) *m Y (tag y)) i j | inr (u, j) => M u i j end.

Lemma move_column (A : 'M[R]_(din, m)) l h i y : (A *m lV (reading_host l) h) i (enum_rank y) =
  if source l h y is Some x then A i (enum_rank x) else 0.
Proof.
rewrite mxE; under eq_bigr => x _ do rewrite [lV _ _ _ _]mxE enum_rankK.
case: (source l h y) => [x|]; last by rewrite big1 // => x _; rewrite mulr0.
rewrite (bigD1 (enum_rank x)) //= enum_rankK eqxx mulr1 big1 ?addr0 // => x' ne.
by case: eqP => [[e]|_]; [case/eqP: ne; rewrite e enum_valK | rewrite mulr0].
Qed.
Lemma drop_put t (u : t.-tuple letter) l h u' : put u l h = Some u' ->
  drop l u' = Some h :: drop l.+1 u /\ forall k, (k < l)%N -> nth None u' k = nth None u k.
Proof.
rewrite /put; case: ifP => // /andP[lt _] [<-]; rewrite val_insubd size_set_nth size_tuple (maxn_idPr
    lt) eqxx.
split=> [|k kl]; last by rewrite nth_set_nth /= (ltn_eqF kl).
rewrite (drop_nth None) ?size_set_nth ?size_tuple ?(maxn_idPr lt) // nth_set_nth /= eqxx; congr (_ ::
    _).
apply: (eq_from_nth (x0 := None)) => [|k _]; first by rewrite !size_drop size_set_nth size_tuple
    (maxn_idPr lt).
by rewrite !nth_drop nth_set_nth /= (gtn_eqF (leq_addr k l.+1)).
Qed.
Definition value_at (i : 'I_din) (w : seq letter) (y : reading_coord) : R := match y with
  | inl (x, j) => (M (w ++ drop (size w) (tagged x)) *m Y (tag x)) i j
  | inr (u, j) => M (w ++ drop (size w) u) i j end.
Definition word_of (y : reading_coord) : seq letter := match y with inl (x, _) => tagged x | inr (u, _)
    => u end.
Lemma embedded_word w i y : (size w <= size (word_of y))%N -> (forall k, (k < size w)%N -> nth None
    (word_of y) k = None) ->
  (reading_embedding *m res_wprod (values reading_host) 0 w) i (enum_rank y) = value_at i w y.
Proof.
elim/last_ind: w y => [|w o IH] y.
  by move=> _ _; rewrite mulmx1 mxE enum_rankK; case: y => [[x j]|[u j]] /=; rewrite drop0.
rewrite size_rcons => wy silent; rewrite res_wprod_rcons mulmxA add0n.
have at_w : nth None (word_of y) (size w) = None by exact: silent.
case: o => [h|] /=; last first.
  rewrite mulmx1 IH ?(ltnW wy) // => [|k kw]; last by rewrite silent // ltnS ltnW.
  by case: y wy at_w {silent} => [[x j]|[u j]] /= wy at_w; rewrite size_rcons cat_rcons (drop_nth None
      wy) at_w.
rewrite /values -/(values reading_host) move_column.
have put_some t (u : t.-tuple letter) : (size w < size u)%N -> nth None u (size w) = None -> exists u',
    put u (size w) h = Some u'.
  by move=> lt e; rewrite size_tuple in lt; rewrite /put lt e eqxx; eexists.
case: y wy silent at_w => [[[t u] j]|[u j]] /= wy silent at_w; have [u' e] := put_some _ u wy at_w;
  have [du nu] := drop_put e; rewrite e /= IH /= ?size_tuple -?(size_tuple u) ?(ltnW wy) //;
  try (by move=> k kw; rewrite nu // silent // ltnS ltnW);
  by rewrite du size_rcons cat_rcons.
Qed.
Lemma silent_word (u : seq letter) : all (pred1 None) u -> forall k, nth None u k = None.
Proof.
move=> /allP all_none k; case: (ltnP k (size u)) => ku; last by rewrite nth_default.
by apply/eqP; apply: all_none; rewrite mem_nth.
Qed.
Lemma silent_nseq t (u : t.-tuple letter) : all (pred1 None) u = (u == [tuple of nseq t None]).
Proof. by rewrite -val_eqE; apply/all_pred1P/eqP => /=; rewrite size_tuple. Qed.
Lemma sum_at_rank (F : reading_coord -> R) c : (forall y, y != c -> F y = 0) -> \sum_(x < m) F
    (enum_val x) = F c.
Proof.
move=> F0; rewrite (bigD1 (enum_rank c)) //= enum_rankK big1 ?addr0 // => x ne; apply: F0.
by apply: contraNneq ne => <-; rewrite enum_valK.
Qed.
Lemma silent_product w l k : res_wprod (values (layers T)) l (w ++ nseq k None) = res_wprod (values
    (layers T)) l w.
Proof.
elim: w l => [|o w IH] l /=; last by rewrite IH.
by elim: k l => //= k IH l; rewrite IH mul1mx.
Qed.
Lemma read_outputs (w : seq letter) : (size w <= L)%N ->
  reading_embedding *m res_wprod (values reading_host) 0 w *m reading_out = M w.
Proof.
move=> wL; apply/matrixP => i k; rewrite mxE.
pose A := reading_embedding *m res_wprod (values reading_host) 0 w.
pose F (y : reading_coord) := A i (enum_rank y) * (if y is inr (u, j) then all (pred1 None) u && (j ==
    k) else false)%:R.
transitivity (\sum_(x < m) F (enum_val x)).
  by apply: eq_bigr => x _; rewrite /F enum_valK [reading_out _ _]mxE.
rewrite (@sum_at_rank F (inr ([tuple of nseq L None], k))) /F => [|[[x j]|[u j]] ne]; rewrite ?mulr0
    //; last first.
  rewrite silent_nseq; case: (u =P [tuple of nseq L None]) ne => [->|_]; last by rewrite mulr0.
  by case: (j =P k) => [->|_]; rewrite ?mulr0 ?eqxx.
rewrite silent_nseq !eqxx mulr1 embedded_word /= ?size_nseq // => [|n _]; last by rewrite nth_nseq
    if_same.
by rewrite drop_nseq silent_product.
Qed.
Lemma read_readings l (w : l.-tuple letter) : (l < L)%N ->
  reading_embedding *m res_wprod (values reading_host) 0 w *m pick_reading l = M w *m Y l.
Proof.
move=> lL; apply/matrixP => i k; rewrite mxE.
pose A := reading_embedding *m res_wprod (values reading_host) 0 w.
pose F (y : reading_coord) := A i (enum_rank y) * (if y is inl (y, j) then
  [&& (tag y : nat) == l, all (pred1 None) (tagged y) & j == k] else false)%:R.
transitivity (\sum_(x < m) F (enum_val x)).
  by apply: eq_bigr => x _; rewrite /F enum_valK [pick_reading _ _ _]mxE.
rewrite (@sum_at_rank F (inl (existT _ (Ordinal lL) [tuple of nseq l None], k))) /F => [|[[[t u] j]|[u
    j]] ne]; rewrite ?mulr0 //; last first.
  rewrite /=; case: eqP => [e|]; rewrite ?mulr0 //.
  have et : t = Ordinal lL by apply: val_inj.
  move: u ne {e}; rewrite et => u ne.
  rewrite silent_nseq; case: (u =P [tuple of nseq l None]) ne => [->|_]; last by rewrite mulr0.
  by case: (j =P k) => [->|_]; rewrite ?mulr0 ?eqxx.
rewrite /= silent_nseq !eqxx mulr1 embedded_word /= ?size_nseq ?size_tuple // => [|n _]; last by
    rewrite nth_nseq if_same.
by rewrite drop_nseq subnn cats0.
Qed.

(* what readings Y serve *)
Theorem reading_serves :
  (forall l h, (l < L)%N -> (row_mx (Y l) 1%:M *m CQ l h) *m (row_mx (Y l) 1%:M *m CK l h)^T = form
      (layers T) l h) ->
  res_matches_logits L reading_host reading_out (layers T) reading_embedding.
Proof.
move=> ok; split=> [l w v h lL|w]; last by rewrite read_outputs ?size_tuple.
have read (u : l.-tuple letter) (C : 'M_(q + din, d)) :
    reading_embedding *m res_wprod (values reading_host) 0 u *m (pick l *m C) = M u *m (row_mx (Y l)
        1%:M *m C).
  by rewrite mulmxA /pick mul_mx_row read_readings // read_outputs ?size_tuple ?(ltnW lL) // -{2}[M
      u]mulmx1 -mul_mx_row mulmxA.
by rewrite !read trmx_mul mulmxA -(mulmxA (M w)) ok // /form trmx_mul !mulmxA.
Qed.
End Host.

(* k matrices side by side *)
Section Side.
Variables (R : comRingType) (k a b : nat).
Definition side (A : 'I_k -> 'M[R]_(a, b)) : 'M[R]_(a, k * b) :=
  \matrix_(i, x) mxvec (\matrix_(h, j) A h i j) 0 x.
Definition choose_one (h : 'I_k) : 'M[R]_(k * b, b) := \matrix_(x, j) (x == mxvec_index h j)%:R.
Lemma side_one A h : side A *m choose_one h = A h.
Proof.
apply/matrixP => i j; rewrite mxE (bigD1 (mxvec_index h j)) //= !mxE mxvecE mxE eqxx mulr1 big1 ?addr0
    // => x /negbTE ne.
by rewrite [choose_one _ _ _]mxE ne mulr0.
Qed.
End Side.

(* d >= d_in: readings M_w A^(l,h) as queries, and the outputs as keys *)
Section Key.
Variables (R : comUnitRingType) (H d din L : nat).
Hypothesis narrow : (din <= d)%N.
Let P : 'M[R]_(din, d) := pid_mx din.
Let PP : P *m P^T = 1%:M.
Proof. by rewrite /P tr_pid_mx mul_pid_mx minnn (minn_idPr narrow) pid_mx_1. Qed.
Definition key_dimension : nat := (din * (2 * H.+1 ^ L).-1)%N.
Lemma key_dimensionE : #|reading_coord H din L (H * din)| = key_dimension.
Proof.
rewrite card_reading_coord /key_dimension [(H * din)%N]mulnC -mulnA -mulnDr; congr (din * _)%N.
have := predn_exp H.+1 L; rewrite /= => <-; have := expn_gt0 H.+1 L; case: (H.+1 ^ L)%N => // n _.
by rewrite mul2n -addnn addSn.
Qed.
Theorem residual_key_serves : exists (S : nat -> layer R H d key_dimension) (U : 'M[R]_(key_dimension,
    din)),
  forall T : transformer R H d din, exists E, res_matches_logits L S U (layers T) E.
Proof.
rewrite -key_dimensionE; pose CQ (l : nat) (h : 'I_H) : 'M[R]_(H * din + din, d) := col_mx (choose_one
    R din h) 0 *m P.
pose CK (l : nat) (h : 'I_H) : 'M[R]_(H * din + din, d) := col_mx 0 1%:M *m P.
exists (reading_host L CQ CK), (reading_out R H din L (H * din)) => T; pose Y l := side (form (layers
    T) l).
exists (reading_embedding L T Y); apply: reading_serves => l h _.
rewrite /CQ /CK !mulmxA !mul_row_col !mulmx0 addr0 add0r side_one !mul1mx.
by rewrite -mulmxA PP mulmx1.
Qed.
End Key.

(* Keys W_K G^(-T) and the queries W_Q G of k heads as readings; head h reads the queries that it
    reads, and, *)
(* if it is one of those, the first columns of the output *)
Section Query.
Variables (R : comUnitRingType) (H d din L k : nat) (own : 'I_k -> 'I_H) (reads : 'I_H -> pred 'I_k)
    (first : pred 'I_H).
Definition query_dimension : nat := (d * (H + k) * (\sum_(t < L) H.+1 ^ t) + din * H.+1 ^ L)%N.
Lemma query_dimensionE : #|reading_coord H din L (H * d + k * d)| = query_dimension.
Proof. by rewrite card_reading_coord -mulnDl mulnC /query_dimension mulnC (mulnC d). Qed.
Definition served (T : transformer R H d din) (G : nat -> 'I_H -> 'M[R]_d) : Prop := forall l h, (l <
    L)%N ->
  G l h \in unitmx /\ \sum_(x | reads h x) WQ T l (own x) *m G l (own x) + (if first h then pid_mx d
      else 0) = WQ T l h *m G l h.
Theorem residual_query_serves : exists (S : nat -> layer R H d query_dimension) (U :
    'M[R]_(query_dimension, din)),
  forall (T : transformer R H d din) G, served T G -> exists E, res_matches_logits L S U (layers T) E.
Proof.
rewrite -query_dimensionE.
pose CQ (l : nat) (h : 'I_H) : 'M[R]_(H * d + k * d + din, d) :=
  col_mx (col_mx 0 (\sum_(x | reads h x) choose_one R d x)) (if first h then pid_mx d else 0).
pose CK (l : nat) (h : 'I_H) : 'M[R]_(H * d + k * d + din, d) := col_mx (col_mx (choose_one R d h) 0) 0.
exists (reading_host L CQ CK), (reading_out R H din L (H * d + k * d)) => T G ok.
pose Y l := row_mx (side (fun h => WK T l h *m (invmx (G l h))^T)) (side (fun x => WQ T l (own x) *m G
    l (own x))).
exists (reading_embedding L T Y); apply: reading_serves => l h lL; have [un e] := ok l h lL.
rewrite /CQ /CK !mul_row_col !mulmx0 !addr0 add0r mul1mx side_one mulmx_sumr.
under eq_bigr => x _ do rewrite side_one.
by rewrite e trmx_mul trmxK mulmxA mulmxK // /form.
Qed.
End Query.
