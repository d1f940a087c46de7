(* Transformers with a residual stream, over an arbitrary ring.                 *)
(*                                                                            *)
(*   res_net A S l X     the stream X^l = X^(l-1) + sum_h A^(l,h) X^(l-1) R_V^(l,h)  *)
(*   res_wprod V i w     R_w for a word w over H+1 letters (see ResidualWords):   *)
(*                       the letter None of the identity head contributes I      *)
(*   res_matches         the matching equations, one for each word over H+1       *)
(*                       letters: E R_w R_Q = M_w W_Q and E R_w R_K = M_w W_K      *)
(*                       (before each layer and head), E R_w U = M_w (at the end) *)
(*   res_emulates        equal outputs for every attention map, n and X           *)
(*   res_universal_by_matching   one fixed host, every residual target            *)
(*                                                                            *)
(* Headline theorem                                                            *)
(*   res_matching_emulates   the matching equations imply equal outputs, for every *)
(*                           attention map, context length and input             *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

Section Residual.
Variables (R : ringType) (H d : nat).
Notation letter := (option 'I_H).

Definition res_step (A : attention_map R H d) D l (S : layer R H d D) n (X : 'M[R]_(n, D)) :=
  X + step A l S X.

Fixpoint res_net (A : attention_map R H d) D (S : nat -> layer R H d D) (L n : nat)
    (X : 'M[R]_(n, D)) : 'M[R]_(n, D) :=
  if L is l.+1 then res_step A l (S l) (res_net A S l X) else X.

(* Words over H+1 letters *)

Definition res_value D (V : nat -> 'I_H -> 'M[R]_D) (l : nat) (o : letter) : 'M[R]_D :=
  if o is Some h then V l h else 1%:M.

Fixpoint res_wprod D (V : nat -> 'I_H -> 'M[R]_D) (l0 : nat) (w : seq letter) : 'M[R]_D :=
  if w is o :: w' then res_value V l0 o *m res_wprod V l0.+1 w' else 1%:M.

Lemma res_wprod_rcons D (V : nat -> 'I_H -> 'M[R]_D) l0 w o :
  res_wprod V l0 (rcons w o) = res_wprod V l0 w *m res_value V (l0 + size w)%N o.
Proof.
elim: w l0 => [|a w IH] l0 /=; first by rewrite addn0 mulmx1 mul1mx.
by rewrite IH mulmxA addSnnS.
Qed.

(* without identity letters it is the product along a head word *)
Lemma res_wprod_some D (V : nat -> 'I_H -> 'M[R]_D) l0 (w : seq 'I_H) :
  res_wprod V l0 (map Some w) = wprod V l0 w.
Proof. by elim: w l0 => //= h w IH l0; rewrite IH. Qed.

(* What an embedding E can achieve for one target *)

Section Notions.
Variables (din m L : nat).
Variables (S : nat -> layer R H d m) (U : 'M[R]_(m, din)) (T : nat -> layer R H d din).
Variable E : 'M[R]_(din, m).

Definition res_matches : Prop :=
  [/\ forall l (w : l.-tuple letter) h, (l < L)%N ->
        E *m res_wprod (values S) 0 w *m lQ (S l) h = res_wprod (values T) 0 w *m lQ (T l) h,
      forall l (w : l.-tuple letter) h, (l < L)%N ->
        E *m res_wprod (values S) 0 w *m lK (S l) h = res_wprod (values T) 0 w *m lK (T l) h &
      forall w : L.-tuple letter, E *m res_wprod (values S) 0 w *m U = res_wprod (values T) 0 w].

Definition res_emulates : Prop := forall (A : attention_map R H d) n (X : 'M[R]_(n, din)),
  res_net A S L (X *m E) *m U = res_net A T L X.

(* The stream after l layers is a combination of the words of length l, with the same       *)
(* coefficients B in target and host as long as queries and keys have agreed                 *)
Lemma res_joint_unroll (A : attention_map R H d) n (X : 'M[R]_(n, din)) l : res_matches -> (l <= L)%N ->
  exists (I : finType) (B : I -> 'M[R]_n) (w : I -> l.-tuple letter),
    res_net A T l X = \sum_i B i *m X *m res_wprod (values T) 0 (w i) /\
    res_net A S l (X *m E) = \sum_i B i *m X *m (E *m res_wprod (values S) 0 (w i)).
Proof.
move=> [matchQ matchK _]; elim: l => [|l IH] lL.
  exists [finType of unit], (fun _ => 1%:M), (fun _ => [tuple]) => /=.
  by rewrite !(big_pred1 tt) /= ?mul1mx ?mulmx1 // => -[].
have [I [B [w [eT eS]]]] := IH (ltnW lL).
pose P h := A l h n (res_net A T l X *m lQ (T l) h) (res_net A T l X *m lK (T l) h).
have eP h : A l h n (res_net A S l (X *m E) *m lQ (S l) h) (res_net A S l (X *m E) *m lK (S l) h) = P h.
  rewrite /P; congr A; rewrite eT eS !mulmx_suml; apply: eq_bigr => i _;
    by rewrite -!mulmxA ?(mulmxA E) ?matchQ ?matchK.
pose C o := if o is Some h then P h else 1%:M.
exists [finType of I * letter], (fun io => C io.2 *m B io.1), (fun io => [tuple of rcons (w io.1) io.2]).
have letters Z (F : I * letter -> 'M[R]_(n, Z)) :
    \sum_io F io = \sum_i F (i, None) + \sum_(h < H) \sum_i F (i, Some h).
  transitivity (\sum_o \sum_i F (i, o)); first by rewrite exchange_big pair_big; apply: eq_bigr => -[].
  rewrite (bigD1 None) //=; congr (_ + _).
  rewrite (reindex_omap Some id) => [|[]//].
  by apply: eq_bigl => h; rewrite /= eqxx.
split; rewrite letters /= /res_step; congr (_ + _).
- rewrite eT; apply: eq_bigr => i _ /=.
  by rewrite res_wprod_rcons mul1mx mulmx1.
- apply: eq_bigr => h _; rewrite -/(P h) eT mulmx_sumr mulmx_suml; apply: eq_bigr => i _ /=.
  by rewrite res_wprod_rcons add0n size_tuple !mulmxA.
- rewrite eS; apply: eq_bigr => i _ /=.
  by rewrite res_wprod_rcons mul1mx mulmx1.
- apply: eq_bigr => h _; rewrite eP eS mulmx_sumr mulmx_suml; apply: eq_bigr => i _ /=.
  by rewrite res_wprod_rcons add0n size_tuple !mulmxA.
Qed.

(* The emulation lemma with a residual stream: matching implies equal outputs for every      *)
(* attention map (any scale, mask or positional bias), every n and every X                   *)
Theorem res_matching_emulates : res_matches -> res_emulates.
Proof.
move=> match_ A n X; have [_ _ matchV] := match_.
have [I [B [w [-> ->]]]] := res_joint_unroll A X match_ (leqnn L).
by rewrite mulmx_suml; apply: eq_bigr => i _; rewrite -!mulmxA (mulmxA E) matchV.
Qed.

End Notions.

(* One fixed host for every untied residual target of the class, by matching *)
Definition res_universal_by_matching din m L (S : nat -> layer R H d m) (U : 'M[R]_(m, din)) : Prop :=
  forall T : transformer R H d din, exists E : 'M[R]_(din, m), res_matches L S U (layers T) E.

End Residual.
