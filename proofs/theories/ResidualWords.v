(* Words over H+1 letters: the head words of a residual stream.                 *)
(*                                                                            *)
(* In a residual stream every layer also passes its input on unchanged: it has  *)
(* one more head, whose attention and value matrices are identities. Its letter *)
(* is None ("zero"), and Some h is the letter of the head h.                    *)
(*                                                                            *)
(*   subword v w     v is w with some of its letters set to zero (for words of   *)
(*                   equal length; a longer word is compared with w 0 0 ...)     *)
(*   mobius f        the values g with f w = sum of g v over the words v such     *)
(*                   that w is a subword of v: inclusion-exclusion over the      *)
(*                   zero letters                                              *)
(*   res_column H d din L   the columns of the residual R_all: 2d for every word  *)
(*                   of length t < L over H+1 letters and every head that reads   *)
(*                   after it, din for every word of length L                    *)
(*                                                                            *)
(*   mobius_sum           mobius solves the equations of the projected sums      *)
(*   subword_sum_eq0      a family all of whose sums over subwords vanish is zero *)
(*   card_res_column      there are M_res = 2 d H sum_{t<L} (H+1)^t + d_in (H+1)^L  *)
(*                        columns                                              *)
From mathcomp Require Import all_ssreflect all_algebra.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

(* M_res, the number of columns *)
Definition res_matching_dimension (H L d din : nat) : nat :=
  (2 * d * H * (\sum_(t < L) H.+1 ^ t) + H.+1 ^ L * din)%N.

Section Subwords.
Variable T : finType.
Notation letter := (option T).

Fixpoint subword (v w : seq letter) : bool :=
  if v is o :: v' then ((o == None) || (o == head None w)) && subword v' (behead w) else true.

(* summing over the words of length l.+1: the first letter, then the rest *)
Lemma sum_word_cons (Z : zmodType) l (P : pred (seq letter)) (F : l.+1.-tuple letter -> Z) :
  \sum_(v : l.+1.-tuple letter | P v) F v =
  \sum_(o : letter) \sum_(v : l.-tuple letter | P (o :: v)) F [tuple of o :: v].
Proof.
rewrite pair_big_dep /= (reindex (fun p : letter * l.-tuple letter => [tuple of p.1 :: p.2])) //.
exists (fun v => (thead v, [tuple of behead v])) => [[o v] _|v _].
  by rewrite theadE; congr pair; apply: val_inj.
by case/tupleP: v => o v; apply: val_inj; rewrite /= theadE.
Qed.

Lemma sum_letter (Z : zmodType) (F : letter -> Z) :
  \sum_o F o = F None + \sum_(h : T) F (Some h).
Proof.
rewrite (bigD1 None) //=; congr (_ + _).
rewrite (reindex_omap Some id) => [|[]//].
by apply: eq_bigl => h; rewrite /= eqxx.
Qed.

Section Mobius.
Variable Z : zmodType.

Fixpoint mobius l : (l.-tuple letter -> Z) -> l.-tuple letter -> Z :=
  if l is l'.+1 then fun f v =>
    mobius (fun s : l'.-tuple letter => if thead v is Some h then f [tuple of Some h :: s]
            else f [tuple of None :: s] - \sum_(h : T) f [tuple of Some h :: s]) [tuple of behead v]
  else id.

Lemma mobius_cons l (f : l.+1.-tuple letter -> Z) o (v : l.-tuple letter) :
  mobius f [tuple of o :: v] = mobius (fun s : l.-tuple letter => if o is Some h then
    f [tuple of Some h :: s] else f [tuple of None :: s] - \sum_(h : T) f [tuple of Some h :: s]) v.
Proof. by rewrite /= theadE; congr mobius; apply: val_inj. Qed.

Theorem mobius_sum l (f : l.-tuple letter -> Z) (w : l.-tuple letter) :
  \sum_(v : l.-tuple letter | subword w v) mobius f v = f w.
Proof.
elim: l f w => [|l IH] f w; first by rewrite (tuple0 w) (big_pred1 [tuple]) // => v; rewrite (tuple0 v).
case/tupleP: w => o w; rewrite sum_word_cons.
under eq_bigr => o' _ do under eq_bigr => v _ do rewrite mobius_cons.
case: o => [h|] /=; last by under eq_bigr => o' _ do rewrite IH; rewrite sum_letter subrK.
rewrite (bigD1 (Some h)) //= eqxx IH big1 ?addr0 // => o' /negbTE o'h.
by rewrite big_pred0 // => v; rewrite eq_sym o'h.
Qed.

Theorem subword_sum_eq0 l (f : l.-tuple letter -> Z) :
  (forall w : l.-tuple letter, \sum_(v : l.-tuple letter | subword v w) f v = 0) -> forall w, f w = 0.
Proof.
elim: l f => [|l IH] f f0 w.
  by rewrite -[RHS](f0 w) (tuple0 w) (big_pred1 [tuple]) // => v; rewrite (tuple0 v).
have fN (v : l.-tuple letter) : f [tuple of None :: v] = 0.
  apply: (IH (fun v => f [tuple of None :: v])) => w0.
  have := f0 [tuple of None :: w0]; rewrite (sum_word_cons (subword^~ _)) sum_letter /=.
  rewrite [X in _ + X]big1 ?addr0 // => h _.
  by rewrite big_pred0.
case/tupleP: w => -[h|] w //.
apply: (IH (fun v => f [tuple of Some h :: v])) => w0.
have := f0 [tuple of Some h :: w0]; rewrite (sum_word_cons (subword^~ _)) sum_letter /=.
rewrite big1 ?add0r => [|v _]; last exact: fN.
rewrite (bigD1 h) //= eqxx /= [X in _ + X]big1 ?addr0 // => h' h'h.
by rewrite big_pred0 // => v; rewrite (inj_eq (@Some_inj _)) (negbTE h'h).
Qed.

End Mobius.
End Subwords.

Section Columns.
Variables (H d din L : nat).

(* a word of length t < L over H+1 letters and the head that reads after it *)
Definition res_read := [finType of {t : 'I_L & (t.-tuple (option 'I_H) * 'I_H)%type}].

Definition mkread l (w : l.-tuple (option 'I_H)) (h : 'I_H) (lL : (l < L)%N) : res_read :=
  existT _ (Ordinal lL) (w, h).

(* the columns read by one head of one layer: a sum over the words before it *)
Lemma sum_read_at (Z : zmodType) l h (lL : (l < L)%N) (F : res_read -> Z) :
  \sum_(x : res_read | (tag x == l :> nat) && ((tagged x).2 == h)) F x =
  \sum_(w : l.-tuple (option 'I_H)) F (mkread w h lL).
Proof.
transitivity (\sum_(t < L | t == l :> nat) \sum_(p : t.-tuple (option 'I_H) * 'I_H | p.2 == h)
    F (existT _ t p)); first by rewrite sig_big_dep; apply: eq_bigr => -[].
rewrite (big_pred1 (Ordinal lL)) //=.
transitivity (\sum_(w : l.-tuple (option 'I_H)) \sum_(h' | h' == h) F (mkread w h' lL)).
  by rewrite pair_big_dep; apply: eq_bigr => -[].
by apply: eq_bigr => w _; rewrite big_pred1_eq.
Qed.

Definition res_column := [finType of res_read * 'I_(d + d) + L.-tuple (option 'I_H) * 'I_din].

Lemma card_res_column : #|res_column| = res_matching_dimension H L d din.
Proof.
rewrite card_sum !card_prod card_tagged sumnE big_map big_enum /= card_tuple card_option !card_ord.
rewrite /res_matching_dimension addnn -mul2n; congr (_ + _)%N.
rewrite big_distrl big_distrr; apply: eq_bigr => t _ /=.
by rewrite card_prod card_tuple card_option !card_ord mulnAC -mulnA [RHS]mulnC mulnC -mulnA.
Qed.

End Columns.
