(* Head words.                                                                 *)
(*                                                                            *)
(*   word H L      the nonempty words of length at most L over H heads; there are *)
(*                 S = H + H^2 + ... + H^L of them                              *)
(*   letters w     the word as a sequence                                       *)
(*   prew w, lastw w   the word without its last letter, and that letter (the head *)
(*                 that reads); tag w is the layer that reads                    *)
From mathcomp Require Import all_ssreflect.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* S, the number of nonempty words *)
Definition word_count (H L : nat) : nat := (\sum_(1 <= t < L.+1) H ^ t)%N.

(* M, the number of columns of R_all: 2 d S + d_in H^L *)
Definition matching_dimension (H L d din : nat) : nat := (2 * d * word_count H L + H ^ L * din)%N.

Section Words.
Variables (H L : nat).

Definition word := [finType of {t : 'I_L & t.+1.-tuple 'I_H}].
Definition letters (w : word) : seq 'I_H := tval (tagged w).

Lemma letters_inj : injective letters.
Proof.
move=> [[t lt] x] [[u lu] y] /= e; rewrite /letters /= in e.
have tu : t = u by have := congr1 size e; rewrite !size_tuple => -[].
case: u / tu lu y e => lu y e.
by rewrite (bool_irrelevance lu lt) in y e *; congr existT; apply: val_inj.
Qed.

Lemma letters_ex s : (0 < size s <= L)%N -> exists w, letters w = s.
Proof. by case: s => [|h s] //= sL; exists (existT _ (Ordinal sL) (in_tuple (h :: s))). Qed.

Lemma letters_size w : (0 < size (letters w) <= L)%N.
Proof. by case: w => t x; rewrite /letters /= size_tuple ltn_ord. Qed.

Lemma card_word : #|word| = word_count H L.
Proof.
rewrite card_tagged sumnE big_map big_enum /= /word_count big_add1 big_mkord.
by apply: eq_bigr => t _; rewrite card_tuple card_ord.
Qed.

Definition lastw (w : word) : 'I_H := last (thead (tagged w)) (letters w).
Definition prew (w : word) : (tag w).-tuple 'I_H :=
  [tuple of belast (thead (tagged w)) (behead_tuple (tagged w))].

Lemma lettersE w : letters w = rcons (prew w) (lastw w).
Proof.
case: w => t x; rewrite /lastw /prew /letters /=; case/tupleP: x => h s /=.
by rewrite theadE /= -lastI.
Qed.

(* the word made of w (of length l < L) and a reading head h *)
Definition mkword l (w : l.-tuple 'I_H) (h : 'I_H) (lL : (l < L)%N) : word :=
  existT _ (Ordinal lL) [tuple of rcons w h].

Lemma mkword_letters l (w : l.-tuple 'I_H) h (lL : (l < L)%N) : letters (mkword w h lL) = rcons w h.
Proof. by []. Qed.

Lemma belast_thead_rcons T (s : seq T) (h : T) :
  belast (nth h (rcons s h) 0) (behead (rcons s h)) = s.
Proof. by case: s => //= b s; rewrite belast_rcons. Qed.

(* anything computed from a word's prefix and last letter is computed from them again *)
Lemma mkwordK l (w : l.-tuple 'I_H) h (lL : (l < L)%N)
    (V : Type) (B : forall l, l.-tuple 'I_H -> 'I_H -> V) :
  B _ (prew (mkword w h lL)) (lastw (mkword w h lL)) = B l w h.
Proof.
rewrite /lastw /letters /= last_rcons; congr B; apply: val_inj => /=.
by rewrite /thead (tnth_nth h) /= belast_thead_rcons.
Qed.

End Words.
