(* Tied hosts that route along head words by moving coordinates.                  *)
(*                                                                                *)
(* The coordinates of the host are a finite type C. The value matrix of head h is *)
(* the {0,1} matrix of a relation; a trie sends block w to block (h, w).          *)
(*                                                                                *)
(*   wprod_sel      if every value matrix moves the selection g s to g (h :: s),  *)
(*                  then the word product of p moves g [::] to g p                *)
(*   word_at w0 s   the word with letters s (w0 where there is none)              *)
(*   letters0 w     the letters of a word of length 0, ..., L (None: the empty    *)
(*                  word)                                                         *)
(*   reader P b     the {0,1} matrix with b columns whose column j reads the      *)
(*                  coordinates u with P u j; for b > d_in it is the reader with  *)
(*                  d_in columns, padded with zero columns (reader_sel)           *)
(*   program c      the embedding with entries c i u at the coordinate u          *)
(*   sparse01 A     A has entries 0 and 1, and at most m nonzero ones (m rows)    *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words Selection.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

Section WordAt.
Variables (H L : nat).

Definition word_at (w0 : word H L) (s : seq 'I_H) : word H L := odflt w0 [pick w | letters w == s].

Lemma letters_word_at w0 s : (0 < size s <= L)%N -> letters (word_at w0 s) = s.
Proof.
move=> /letters_ex[w e]; rewrite /word_at.
by case: pickP => [x /eqP //|/(_ w)]; rewrite e eqxx.
Qed.

(* the words of length 0, ..., L *)
Definition letters0 (w : option (word H L)) : seq 'I_H := oapp (@letters H L) [::] w.

Lemma letters0_inj : injective letters0.
Proof.
case=> [w|] [v|] //= e; first by rewrite (letters_inj e).
- by have := letters_size w; rewrite e.
- by have := letters_size v; rewrite -e.
Qed.

Lemma letters0_ex (s : seq 'I_H) : (size s <= L)%N -> exists w, letters0 w = s.
Proof.
case: s => [|h s] sL; first by exists None.
by have [w e] := @letters_ex H L (h :: s) sL; exists (Some w).
Qed.

End WordAt.

Section Routing.
Variables (R : ringType) (H : nat) (C : finType).

Lemma wprod_sel n (r : 'I_H -> rel C) (g : seq 'I_H -> 'I_n -> C) l0 (p : seq 'I_H) :
  (forall h s u j, (size s < size p)%N -> r h u (g s j) = (u == g (h :: s) j)) ->
  wprod (fun _ h => rel_mx R (r h)) l0 p *m sel R (g [::]) = sel R (g p).
Proof.
elim: p l0 => [|h p IH] l0 step; first by rewrite mul1mx.
rewrite wprod_cons -mulmxA IH => [|a s u j sp]; last by rewrite step // ltnW.
by apply: rel_mx_sel => u j; rewrite step.
Qed.

Definition reader (P : C -> nat -> bool) b : 'M[R]_(#|C|, b) := \matrix_(u, j) (P (enum_val u) j)%:R.

(* a reader of one coordinate per column, d_in of them *)
Lemma reader_sel (P : C -> nat -> bool) din b (f : 'I_din -> C) :
  (forall u (j : 'I_din), P u j = (u == f j)) -> (forall u j, P u j -> (j < din)%N) ->
  reader P b = sel R f *m pid_mx din.
Proof.
move=> Pf Pdin; apply/matrixP => u j; rewrite !mxE.
have [jd|dj] := ltnP j din.
  rewrite (bigD1 (Ordinal jd)) //= !mxE /= eqxx jd mulr1 -Pf /= big1 ?addr0 // => i.
  by rewrite -val_eqE !mxE /= => /negbTE ->; rewrite mulr0.
have -> : P (enum_val u) j = false by apply: contraTF dj => /Pdin; rewrite -ltnNge.
by rewrite big1 // => i _; rewrite !mxE ltn_eqF ?mulr0 // (leq_trans (ltn_ord i)).
Qed.

Lemma reader_sel_id (P : C -> nat -> bool) din (f : 'I_din -> C) :
  (forall u (j : 'I_din), P u j = (u == f j)) -> reader P din = sel R f.
Proof. by move=> Pf; apply/matrixP => u j; rewrite !mxE Pf. Qed.

Definition program a (c : 'I_a -> C -> R) : 'M[R]_(a, #|C|) := \matrix_(i, u) c i (enum_val u).

Lemma program_sel a (c : 'I_a -> C -> R) n (f : 'I_n -> C) :
  program c *m sel R f = \matrix_(i, j) c i (f j).
Proof. by rewrite mul_sel; apply/matrixP => i j; rewrite !mxE enum_rankK. Qed.

(* Sparsity *)

Definition sparse01 m b (A : 'M[R]_(m, b)) : Prop := is01 A /\ (nnz A <= m)%N.

Lemma sparse01_reader (P : C -> nat -> bool) b :
  (forall u j j', P u j -> P u j' -> j = j') -> sparse01 (reader P b).
Proof.
move=> inj; split; first exact: is01_bool.
by apply: nnz_row => u j j'; rewrite !mxE => /natr_neq0 p /natr_neq0 p'; apply/val_inj/(inj _ _ _ p p').
Qed.

Lemma sparse01_rel (r : rel C) : (forall u u' v, r u v -> r u' v -> u = u') -> sparse01 (rel_mx R r).
Proof.
move=> inj; split; first exact: is01_bool.
apply: nnz_col => u u' v; rewrite !mxE => /natr_neq0 p /natr_neq0 p'.
exact/enum_val_inj/(inj _ _ _ p p').
Qed.

End Routing.

(* zero columns do not change logits *)
Lemma logits_pad (R : comRingType) din d (le : (din <= d)%N) a b (Q : 'M[R]_(a, din)) (K : 'M[R]_(b, din)) :
  (Q *m (pid_mx din : 'M_(din, d))) *m (K *m (pid_mx din : 'M_(din, d)))^T = Q *m K^T.
Proof.
rewrite trmx_mul tr_pid_mx !mulmxA -(mulmxA Q) mul_pid_mx minnn (minn_idPr le) pid_mx_1.
by rewrite mulmx1.
Qed.
