(* Matching implies equal outputs (the emulation lemma).                                              *)
(*                                                                                                    *)
(* The stream of a transformer unrolls along head words (lem:unroll, lem:multiunroll): after l layers *)
(* it is the sum over the words w of length l of P_w X R_w, where P_w is the product of the attention *)
(* matrices met along w. A host behind the embedding E starts from X E; E stands once, before the     *)
(* first layer. If E solves the matching equations, then host and target have the same attention      *)
(* matrices in every layer (lem:multieqatt) and, by (OV), the same outputs. The attention matrices of *)
(* layer l depend on the streams of all layers before it, so that equality in layer l needs the       *)
(* equations of ALL layers up to l. The lemma read literally, with the equations of layer l alone, is *)
(* false: multieqatt_one_layer is a counterexample with one head, two layers and width 1.             *)
(*                                                                                                    *)
(*   head_product P l0 w        P_w: the product of attention matrices along w                        *)
(*   att A S X l h              the attention matrix of head h in layer l on the input X              *)
(*   multiunroll                net A S l X = sum over w of P_w X R_w                                 *)
(*   multieqatt                 query and key equations up to layer l => equal attention there        *)
(*   matching_equal_attention   matching equations => equal attention in all layers                   *)
(*   multieqatt_one_layer       the equations of one layer alone do not suffice                       *)
(*   matching_emulates          matching => equal outputs, for every attention map whatsoever of      *)
(*                              queries, keys, layer, head and context length, every n and X, over    *)
(*                              any ring                                                              *)
(*   matching_logits_emulates   attention-matching => equal outputs for every attention that depends  *)
(*                              on the logits alone, over a commutative ring                          *)
(*   form T l h                 the logit form W_Q W_K^T of a head                                    *)
(*   matches_matches_logits, emulates_emulates_logits                                                 *)
(*                              matching => attention-matching, and the same for their conclusions    *)
(*                                                                                                    *)
(* Host S and target T are arbitrary families of layers: untied hosts and targets are covered, and    *)
(* tied (looped) ones are the constant families (fun=> lay). The corollaries at the end say so.       *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

(* a sum over words of length l + 1 is a sum over words of length l and last letters *)
Lemma sum_words_rcons (V : zmodType) H l (F : seq 'I_H -> V) :
  \sum_(w : l.+1.-tuple 'I_H) F w = \sum_(w : l.-tuple 'I_H) \sum_(h < H) F (rcons w h).
Proof.
pose snoc (p : l.-tuple 'I_H * 'I_H) := [tuple of rcons p.1 p.2].
have snoc_inj : injective snoc.
  move=> [u a] [v b] /(congr1 val) /= /rcons_inj[e ->].
  by congr pair; apply: val_inj.
have snoc_bij : bijective snoc.
  by apply: inj_card_bij snoc_inj _; rewrite card_prod !card_tuple card_ord expnSr.
by rewrite (reindex snoc) /=; [rewrite pair_bigA | apply: onW_bij].
Qed.

Section Unroll.
Variables (R : ringType) (H : nat).

(* the product of attention matrices along a head word: the first letter acts first *)
Fixpoint head_product n (P : nat -> 'I_H -> 'M[R]_n) (l0 : nat) (w : seq 'I_H) : 'M[R]_n :=
  if w is h :: w' then head_product P l0.+1 w' *m P l0 h else 1%:M.

Lemma head_product_rcons n (P : nat -> 'I_H -> 'M[R]_n) l0 w h :
  head_product P l0 (rcons w h) = P (l0 + size w)%N h *m head_product P l0 w.
Proof.
elim: w l0 => [|a w IH] l0 /=; first by rewrite addn0 mulmx1 mul1mx.
by rewrite IH addSnnS mulmxA.
Qed.

Lemma eq_head_product n (P P' : nat -> 'I_H -> 'M[R]_n) l0 w :
  (forall l h, (l0 <= l < l0 + size w)%N -> P l h = P' l h) ->
  head_product P l0 w = head_product P' l0 w.
Proof.
elim: w l0 => //= h w IH l0 e; rewrite e ?leqnn ?addnS ?ltnS ?leq_addr // IH // => l k /andP[l0l ll].
by apply: e; rewrite (ltnW l0l) /= addnS -addSn.
Qed.

(* with attention from outside: the sum over head words of P_w X V_w *)
Lemma shared_unroll n (P : nat -> 'I_H -> 'M[R]_n) D (V : nat -> 'I_H -> 'M[R]_D) l X :
  shared_net P V l X = \sum_(w : l.-tuple 'I_H) head_product P 0 w *m X *m wprod V 0 w.
Proof.
elim: l => [|l IH] /=.
  rewrite (big_pred1 [tuple]) /= ?mul1mx ?mulmx1 // => w; exact/esym/eqP/tuple0.
rewrite (@sum_words_rcons _ _ _ (fun w => head_product P 0 w *m X *m wprod V 0 w)) exchange_big /=.
apply: eq_bigr => h _; rewrite IH mulmx_sumr mulmx_suml; apply: eq_bigr => w _.
by rewrite head_product_rcons wprod_rcons add0n size_tuple !mulmxA.
Qed.

Section Attention.
Variables (d : nat) (A : attention_map R H d).

(* the attention matrices of a run *)
Definition att D (S : nat -> layer R H d D) n (X : 'M[R]_(n, D)) (l : nat) (h : 'I_H) : 'M[R]_n :=
  A l h (net A S l X *m lQ (S l) h) (net A S l X *m lK (S l) h).

Lemma net_shared D (S : nat -> layer R H d D) l n (X : 'M[R]_(n, D)) :
  net A S l X = shared_net (att S X) (values S) l X.
Proof. by elim: l => //= l <-. Qed.

(* lem:unroll, lem:multiunroll *)
Theorem multiunroll D (S : nat -> layer R H d D) l n (X : 'M[R]_(n, D)) :
  net A S l X = \sum_(w : l.-tuple 'I_H) head_product (att S X) 0 w *m X *m wprod (values S) 0 w.
Proof. by rewrite net_shared shared_unroll. Qed.

(* the same for a host behind the embedding E, which stands once, before the first layer *)
Corollary multiunroll_embedded din m (S : nat -> layer R H d m) (E : 'M[R]_(din, m)) l n
    (X : 'M[R]_(n, din)) :
  net A S l (X *m E) =
  \sum_(w : l.-tuple 'I_H) head_product (att S (X *m E)) 0 w *m X *m (E *m wprod (values S) 0 w).
Proof. by rewrite multiunroll; apply: eq_bigr => w _; rewrite !mulmxA. Qed.

End Attention.
End Unroll.

(* Matching: one embedding for every attention map *)

Section Matching.
Variables (R : ringType) (H d din m L : nat).
Variables (S : nat -> layer R H d m) (U : 'M[R]_(m, din)).
Variables (T : nat -> layer R H d din) (E : 'M[R]_(din, m)).

(* with the same attention before layer l, the host's stream runs along the target's attention *)
Lemma net_same_attention (A : attention_map R H d) l n (X : 'M[R]_(n, din)) :
  (forall l' h, (l' < l)%N -> att A S (X *m E) l' h = att A T X l' h) ->
  net A S l (X *m E) =
  \sum_(w : l.-tuple 'I_H) head_product (att A T X) 0 w *m X *m (E *m wprod (values S) 0 w).
Proof.
move=> eA; rewrite multiunroll_embedded; apply: eq_bigr => w _; congr (_ *m _ *m _).
by apply: eq_head_product => l' h; rewrite add0n size_tuple => /eA.
Qed.

(* ... and matching matrices read the same from both streams *)
Lemma net_same_read (A : attention_map R H d) l e (G : 'M[R]_(m, e)) (G' : 'M[R]_(din, e)) n
    (X : 'M[R]_(n, din)) :
  (forall l' h, (l' < l)%N -> att A S (X *m E) l' h = att A T X l' h) ->
  (forall w : l.-tuple 'I_H, E *m wprod (values S) 0 w *m G = wprod (values T) 0 w *m G') ->
  net A S l (X *m E) *m G = net A T l X *m G'.
Proof.
move=> /net_same_attention-> eG; rewrite multiunroll !mulmx_suml; apply: eq_bigr => w _.
by rewrite -mulmxA eG mulmxA.
Qed.

(* lem:multieqatt: the query and key equations of all layers up to l give equal attention at layer l
   (and in the layers before it); the output equations are not needed *)
Theorem multieqatt (A : attention_map R H d) n (X : 'M[R]_(n, din)) l :
  (forall l' (w : l'.-tuple 'I_H) h, (l' <= l)%N ->
     E *m wprod (values S) 0 w *m lQ (S l') h = wprod (values T) 0 w *m lQ (T l') h) ->
  (forall l' (w : l'.-tuple 'I_H) h, (l' <= l)%N ->
     E *m wprod (values S) 0 w *m lK (S l') h = wprod (values T) 0 w *m lK (T l') h) ->
  forall h, att A S (X *m E) l h = att A T X l h.
Proof.
elim/ltn_ind: l => l IH eQ eK h.
have before l' k : (l' < l)%N -> att A S (X *m E) l' k = att A T X l' k.
  move=> l'l; apply: IH => // j w k' jl'; [apply: eQ|apply: eK]; exact: leq_trans jl' (ltnW l'l).
rewrite {1}/att (net_same_read before (fun w => eQ l w h (leqnn l))).
by rewrite (net_same_read before (fun w => eK l w h (leqnn l))).
Qed.

Corollary matching_equal_attention (A : attention_map R H d) n (X : 'M[R]_(n, din)) :
  matches L S U T E -> forall l h, (l < L)%N -> att A S (X *m E) l h = att A T X l h.
Proof.
case=> eQ eK _ l h lL; apply: multieqatt => l' w k l'l; [apply: eQ|apply: eK]; exact: leq_ltn_trans lL.
Qed.

(* The emulation lemma: a solution of the matching equations gives equal outputs for every
   attention map, context length and input. *)
Theorem matching_emulates : matches L S U T E -> emulates L S U T E.
Proof.
move=> match_E A n X; rewrite -[RHS]mulmx1.
case: (match_E) => _ _ eU; apply: net_same_read => [l h|w]; last by rewrite mulmx1.
exact: matching_equal_attention.
Qed.

(* equality for all attention maps contains equality for those that see the logits alone *)
Lemma emulates_emulates_logits : emulates L S U T E -> emulates_logits L S U T E.
Proof. by move=> em f; apply: em. Qed.

Lemma matching_emulates_logits : matches L S U T E -> emulates_logits L S U T E.
Proof. by move=> /matching_emulates/emulates_emulates_logits. Qed.

End Matching.

(* the logit form of a head: the logits of the queries x W_Q and keys y W_K are x (form) y^T *)
Definition form (R : ringType) (H d D : nat) (T : nat -> layer R H d D) l h : 'M[R]_D :=
  lQ (T l) h *m (lK (T l) h)^T.

(* Attention-matching. The logits are q k^T; over a commutative ring they are bilinear forms of the
   inputs, and the forms of all pairs of words decide them. *)

Section MatchingLogits.
Variables (R : comRingType) (H d din m L : nat).
Variables (S : nat -> layer R H d m) (U : 'M[R]_(m, din)).
Variables (T : nat -> layer R H d din) (E : 'M[R]_(din, m)).

Lemma matches_matches_logits : matches L S U T E -> matches_logits L S U T E.
Proof. by case=> eQ eK eU; split=> // l w v h lL; rewrite eQ ?eK. Qed.

(* the logits of a stream that is a sum along words *)
Lemma logits_sum (I : finType) D D' e n (B : I -> 'M[R]_(n, D)) (Y : I -> 'M[R]_(D, D'))
    (Q K : 'M[R]_(D', e)) :
  (\sum_i B i *m Y i) *m Q *m ((\sum_i B i *m Y i) *m K)^T
  = \sum_i \sum_j B i *m (Y i *m Q *m (Y j *m K)^T) *m (B j)^T.
Proof.
rewrite !mulmx_suml; apply: eq_bigr => i _.
rewrite raddf_sum mulmx_sumr; apply: eq_bigr => j _.
by rewrite /= -[B j *m _ *m _]mulmxA trmx_mul !mulmxA.
Qed.

Lemma multieqatt_logits (f : logit_map R H) n (X : 'M[R]_(n, din)) (A := logit_attention (d := d) f) :
  matches_logits L S U T E -> forall l h, (l < L)%N -> att A S (X *m E) l h = att A T X l h.
Proof.
case=> eA _ l; elim/ltn_ind: l => l IH h lL; congr (f l h n _).
have before l' k : (l' < l)%N -> att A S (X *m E) l' k = att A T X l' k.
  by move=> l'l; apply/IH/ltn_trans/lL.
rewrite (net_same_attention before) multiunroll !logits_sum; apply: eq_bigr => w _; apply: eq_bigr => v _.
by rewrite eA.
Qed.

(* Equal logit forms for every pair of words, and (OV): equal outputs whenever attention is a function
   of the logits (softmax with any mask or scale, ALiBi, sliding windows; not RoPE or normalised
   queries and keys). *)
Theorem matching_logits_emulates : matches_logits L S U T E -> emulates_logits L S U T E.
Proof.
move=> match_E f n X; rewrite -[RHS]mulmx1.
case: (match_E) => _ eU; apply: net_same_read => [l h|w]; last by rewrite mulmx1.
exact: multieqatt_logits.
Qed.

End MatchingLogits.

(* The equations of one layer alone do not suffice: host and target below differ in the queries of layer
   0 only, so that all matching equations of layer 1 (and OV) hold, and layer 1 attends differently. *)

Section OneLayer.
Variable R : ringType.

Definition switch (b : bool) : nat -> layer R 1 1 1 :=
  fun l => Layer (fun=> (b || (l != 0%N))%:R%:M) (fun=> 1%:M) (fun=> 1%:M).

Lemma switch_value b w l0 : wprod (values (switch b)) l0 w = 1%:M.
Proof. by elim: w l0 => //= h w IH l0; rewrite IH mulmx1. Qed.

Proposition multieqatt_one_layer :
  exists (S T : nat -> layer R 1 1 1) (E U : 'M[R]_1) (A : attention_map R 1 1) (X : 'M[R]_1),
  [/\ forall (w : 1.-tuple 'I_1) h, E *m wprod (values S) 0 w *m lQ (S 1%N) h
                                    = wprod (values T) 0 w *m lQ (T 1%N) h,
      forall (w : 1.-tuple 'I_1) h, E *m wprod (values S) 0 w *m lK (S 1%N) h
                                    = wprod (values T) 0 w *m lK (T 1%N) h,
      forall w : 2.-tuple 'I_1, E *m wprod (values S) 0 w *m U = wprod (values T) 0 w &
      att A S (X *m E) 1 ord0 <> att A T X 1 ord0].
Proof.
exists (switch false), (switch true), 1%:M, 1%:M, (logit_attention (fun _ _ _ P => P)), 1%:M.
split=> [w h|w h|w|]; rewrite ?switch_value ?mulmx1 ?mul1mx //.
have att1 b : att (logit_attention (fun _ _ _ P => P)) (switch b) 1%:M 1 ord0 = b%:R%:M.
  rewrite /att /= /step big_ord1 /logit_attention /= !(mulmx1, mul1mx, trmx1) orbF.
  by case: b; rewrite ?(trmx1, mulmx1) // raddf0 trmx0 mulmx0.
by rewrite !att1 => /matrixP/(_ 0 0)/eqP; rewrite !mxE eq_sym oner_eq0.
Qed.

End OneLayer.

(* Readings for universality and for tied hosts *)

Section Corollaries.
Variables (R : ringType) (H d din m L : nat).

(* universality by matching is universality for every attention map at once, with one embedding *)
Corollary universal_by_matching_emulates (S : nat -> layer R H d m) (U : 'M[R]_(m, din)) :
  universal_by_matching L S U -> forall T : transformer R H d din, exists E, emulates L S U (layers T) E.
Proof. by move=> univ T; have [E /matching_emulates] := univ T; exists E. Qed.

(* the targets of the paper, untied host *)
Corollary matching_emulates_target (S : nat -> layer R H d m) (U : 'M[R]_(m, din))
    (T : transformer R H d din) E :
  matches L S U (layers T) E -> emulates L S U (layers T) E.
Proof. exact: matching_emulates. Qed.

(* a tied host, an untied target (the paper's looped universal transformer) *)
Corollary matching_emulates_tied_host (S : layer R H d m) (U : 'M[R]_(m, din))
    (T : transformer R H d din) E :
  matches L (fun=> S) U (layers T) E -> emulates L (fun=> S) U (layers T) E.
Proof. exact: matching_emulates. Qed.

(* a tied host, a tied target *)
Corollary matching_emulates_tied (S : layer R H d m) (U : 'M[R]_(m, din)) (T : layer R H d din) E :
  matches L (fun=> S) U (fun=> T) E -> emulates L (fun=> S) U (fun=> T) E.
Proof. exact: matching_emulates. Qed.

End Corollaries.
