(* Transformers without residual stream, over an arbitrary ring.                *)
(*                                                                            *)
(* Rows are tokens and matrices act on the right, as in the paper.              *)
(* n: context length, D: width, d: head dimension, H: heads, L: layers,         *)
(* din: width of the target (d_in), m: embedding dimension of the host.         *)
(* Layers and heads count from 0.                                              *)
(*                                                                            *)
(*   layer D          query, key and value matrices of the H heads of one layer *)
(*   attention_map    an arbitrary function of queries and keys, for every layer, *)
(*                    head and context length: softmax with any mask, scale or   *)
(*                    positional bias is one                                   *)
(*   net A S l X      the stream after l layers S 0, ..., S l.-1 on the input X  *)
(*   wprod V i w      R_w: the product of value matrices along the head word w,  *)
(*                    read by the layers i, i.+1, ...                           *)
(*   transformer din  a target of the paper: W_Q, W_K, W_V, W_O                  *)
(*   matches          the matching equations (QK) and (OV)                       *)
(*   emulates         equal outputs for every attention map, n and X             *)
(*   emulates_logits  the same for attention that depends on the logits q.k alone *)
From mathcomp Require Import all_ssreflect all_algebra.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

Section Transformer.
Variables (R : ringType) (H d : nat).

Record layer (D : nat) := Layer {
  lQ : 'I_H -> 'M[R]_(D, d);
  lK : 'I_H -> 'M[R]_(D, d);
  lV : 'I_H -> 'M[R]_D }.

Definition attention_map :=
  nat -> 'I_H -> forall n, 'M[R]_(n, d) -> 'M[R]_(n, d) -> 'M[R]_n.

(* X |-> sum over heads of (attention matrix) X (value matrix) *)
Definition step (A : attention_map) D l (S : layer D) n (X : 'M[R]_(n, D)) :=
  \sum_(h < H) A l h n (X *m lQ S h) (X *m lK S h) *m X *m lV S h.

Fixpoint net (A : attention_map) D (S : nat -> layer D) (L n : nat) (X : 'M[R]_(n, D)) :=
  if L is l.+1 then step A l (S l) (net A S l X) else X.

(* attention that sees queries and keys only through the logits q k^T *)
Definition logit_map := nat -> 'I_H -> forall n, 'M[R]_n -> 'M[R]_n.
Definition logit_attention (f : logit_map) : attention_map :=
  fun l h n Q K => f l h n (Q *m K^T).

(* Head words *)

Fixpoint wprod D (V : nat -> 'I_H -> 'M[R]_D) (l0 : nat) (w : seq 'I_H) : 'M[R]_D :=
  if w is h :: w' then V l0 h *m wprod V l0.+1 w' else 1%:M.

Definition values D (S : nat -> layer D) (l : nat) (h : 'I_H) : 'M[R]_D := lV (S l) h.

Lemma wprod_cons D (V : nat -> 'I_H -> 'M[R]_D) l0 h w :
  wprod V l0 (h :: w) = V l0 h *m wprod V l0.+1 w.
Proof. by []. Qed.

Lemma wprod_rcons D (V : nat -> 'I_H -> 'M[R]_D) l0 w h :
  wprod V l0 (rcons w h) = wprod V l0 w *m V (l0 + size w)%N h.
Proof.
elim: w l0 => [|a w IH] l0 /=; first by rewrite addn0 mulmx1 mul1mx.
by rewrite IH mulmxA addSnnS.
Qed.

Lemma wprod_cat D (V : nat -> 'I_H -> 'M[R]_D) l0 v w :
  wprod V l0 (v ++ w) = wprod V l0 v *m wprod V (l0 + size v) w.
Proof.
elim: v l0 => [|a v IH] l0 /=; first by rewrite mul1mx addn0.
by rewrite IH mulmxA addSnnS.
Qed.

(* only the layers that the word passes matter *)
Lemma eq_wprod D (V V' : nat -> 'I_H -> 'M[R]_D) l0 w :
  (forall l h, (l0 <= l < l0 + size w)%N -> V l h = V' l h) -> wprod V l0 w = wprod V' l0 w.
Proof.
elim: w l0 => //= h w IH l0 e; rewrite e ?leqnn ?addnS ?ltnS ?leq_addr // IH // => l k /andP[l0l ll].
by apply: e; rewrite (ltnW l0l) /= addnS -addSn.
Qed.

(* Targets: the paper's TF_{H,L,d_in,d}; a tied one is a constant function of the layer *)

Record transformer (din : nat) := Transformer {
  WQ : nat -> 'I_H -> 'M[R]_(din, d);
  WK : nat -> 'I_H -> 'M[R]_(din, d);
  WV : nat -> 'I_H -> 'M[R]_(din, d);
  WO : nat -> 'I_H -> 'M[R]_(d, din) }.

Definition layers din (T : transformer din) (l : nat) : layer din :=
  Layer (WQ T l) (WK T l) (fun h => WV T l h *m WO T l h).

(* What an embedding E can achieve for one target *)

Section Notions.
Variables (din m L : nat).
Variables (S : nat -> layer m) (U : 'M[R]_(m, din)) (T : nat -> layer din) (E : 'M[R]_(din, m)).

(* (QK) for all layers, words of the layers before, and heads; (OV) for all words of length L *)
Definition matches : Prop :=
  [/\ forall l (w : l.-tuple 'I_H) h, (l < L)%N ->
        E *m wprod (values S) 0 w *m lQ (S l) h = wprod (values T) 0 w *m lQ (T l) h,
      forall l (w : l.-tuple 'I_H) h, (l < L)%N ->
        E *m wprod (values S) 0 w *m lK (S l) h = wprod (values T) 0 w *m lK (T l) h &
      forall w : L.-tuple 'I_H, E *m wprod (values S) 0 w *m U = wprod (values T) 0 w].

(* attention-matching: the logit forms of every pair of words agree, and the outputs *)
Definition matches_logits : Prop :=
  (forall l (w v : l.-tuple 'I_H) h, (l < L)%N ->
     (E *m wprod (values S) 0 w *m lQ (S l) h) *m (E *m wprod (values S) 0 v *m lK (S l) h)^T
     = (wprod (values T) 0 w *m lQ (T l) h) *m (wprod (values T) 0 v *m lK (T l) h)^T) /\
  (forall w : L.-tuple 'I_H, E *m wprod (values S) 0 w *m U = wprod (values T) 0 w).

Definition emulates : Prop := forall (A : attention_map) n (X : 'M[R]_(n, din)),
  net A S L (X *m E) *m U = net A T L X.

Definition emulates_logits : Prop := forall (f : logit_map) n (X : 'M[R]_(n, din)),
  net (logit_attention f) S L (X *m E) *m U = net (logit_attention f) T L X.

End Notions.

(* The shared-attention model of the paper's lower bound: attention matrices come from outside *)

Fixpoint shared_net n (P : nat -> 'I_H -> 'M[R]_n) D (V : nat -> 'I_H -> 'M[R]_D) (L : nat)
    (X : 'M[R]_(n, D)) : 'M[R]_(n, D) :=
  if L is l.+1 then \sum_(h < H) P l h *m shared_net P V l X *m V l h else X.

Definition shared_matches din m L (V : nat -> 'I_H -> 'M[R]_m) (M : nat -> 'I_H -> 'M[R]_din)
    (E : 'M[R]_(din, m)) (U : 'M[R]_(m, din)) : Prop :=
  forall w : L.-tuple 'I_H, E *m wprod V 0 w *m U = wprod M 0 w.

(* One fixed host for every target of the class, by matching *)
Definition universal_by_matching din m L (S : nat -> layer m) (U : 'M[R]_(m, din)) : Prop :=
  forall T : transformer din, exists E : 'M[R]_(din, m), matches L S U (layers T) E.

End Transformer.
