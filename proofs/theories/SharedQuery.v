(* The shared-query host: almost all targets with d >= d_in, with fewer coordinates still.            *)
(*                                                                                                    *)
(* The query of a word w can be read off the output, as if all later heads were one fixed head h0,    *)
(* the padding letter: the output of w h0 ... h0 is M_w Y with Y = M^(l,h0) M^(l+1,h0) ... M^(L-1,h0) *)
(* (layers from 0, |w| = l), and where Y is invertible the key makes up for it. The queries of all    *)
(* heads are then one block, and it is also the output: d_in (S + H^L) coordinates suffice, S the     *)
(* number of nonempty head words of length at most L.                                                 *)
(*                                                                                                    *)
(* Coordinates: a key trie, d_in for every word of length 1..L, and a shift register, d_in for every  *)
(* word of length L. The host is tied: as a map on columns, the value matrix of head h sends key      *)
(* block w to (h, w), or to zero for |w| = L, and register block (w_1, ..., w_L) to                   *)
(* (h, w_1, ..., w_(L-1)). The key reader of h reads block (h) of the key trie; every query reader,   *)
(* and the output U, reads the register block (h0, ..., h0). Readers of d > d_in columns are padded   *)
(* with zeros. The program of a target writes M_w into the register block w, and                      *)
(* M_w A^(l,h)^T Y^(-T) into the key block (w, h). Then                                               *)
(*   (E R_w R_Q) (E R_v R_K)^T = (M_w Y) (M_v A^T Y^(-T))^T = M_w A M_v^T.                            *)
(*                                                                                                    *)
(*   shared_query_universal            every m >= d_in (S + H^L), d >= d_in: one tied {0,1} host,     *)
(*                                     with at most m nonzeros per matrix, serves every untied        *)
(*                                     target whose M^(l,h0) = W_V W_O are all invertible, by         *)
(*                                     ATTENTION-MATCHING, hence functionally for every attention     *)
(*                                     that depends on the logits alone                               *)
(*   query_matches                     the program above, for targets with arbitrary value matrices   *)
(*   query_servedP, query_served_ex    these are almost all targets: those where a polynomial, not    *)
(*                                     identically zero, is invertible                                *)
(*   query_host_not_all                and not all: for a target with all M = 0 attention-matching    *)
(*                                     fails, whatever the program                                    *)
(*                                                                                                    *)
(* The notion matters. The queries and keys of the host are not the target's: what is proved here     *)
(* does not survive attention that looks at queries and keys separately, such as rotary positions     *)
(* (RoPE) or normalised queries and keys.                                                             *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words Selection Emulation Trie.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

Section SharedQuery.
Variables (R : comUnitRingType) (H d din L k : nat).
Variable h0 : 'I_H.

(* the key trie, the shift register, and k coordinates without use *)
Definition query_coord := [finType of word H L * 'I_din + L.-tuple 'I_H * 'I_din + 'I_k].
Notation C := query_coord.
Notation m := #|C|.

Lemma card_query_coord : m = (din * (word_count H L + H ^ L) + k)%N.
Proof. by rewrite !card_sum !card_prod card_word card_tuple !card_ord -mulnDl mulnC. Qed.

Definition query_relV (h : 'I_H) : rel C := fun u v =>
  match u, v with
  | inl (inl (x, i)), inl (inl (y, j)) => (letters x == h :: letters y) && (i == j)
  | inl (inr (x, i)), inl (inr (y, j)) => (tval x == take L (h :: y)) && (i == j)
  | _, _ => false
  end.

Definition query_relK (h : 'I_H) (u : C) (j : nat) : bool :=
  if u is inl (inl (x, i)) then (letters x == [:: h]) && (i == j :> nat) else false.

Definition query_root (u : C) (j : nat) : bool :=
  if u is inl (inr (x, i)) then (tval x == nseq L h0) && (i == j :> nat) else false.

Definition query_host : layer R H d m :=
  Layer (fun=> reader R query_root d) (fun h => reader R (query_relK h) d)
        (fun h => rel_mx R (query_relV h)).
Definition query_out : 'M[R]_(m, din) := reader R query_root din.

(* Where the readers look after a word *)

Lemma query_key l (w : l.-tuple 'I_H) h (lL : (l < L)%N) :
  wprod (fun=> lV query_host) 0 w *m lK query_host h
  = sel R (fun j : 'I_din => inl (inl (mkword w h lL, j)) : C) *m pid_mx din.
Proof.
pose at_ s := word_at (mkword w h lL) (rcons s h).
have atE s : (size s <= l)%N -> letters (at_ s) = rcons s h.
  by move=> sl; rewrite letters_word_at // size_rcons /= (leq_ltn_trans sl).
have -> : mkword w h lL = at_ w by apply: letters_inj; rewrite atE ?size_tuple.
rewrite /= (@reader_sel _ _ _ _ _ (fun j => inl (inl (at_ [::], j)) : C)).
- rewrite mulmxA (@wprod_sel _ _ _ _ _ (fun s j => inl (inl (at_ s, j)) : C) 0) //.
  move=> a s [[[x i]|[x i]]|x] j //=; rewrite size_tuple => sl.
  by rewrite atE 1?ltnW // -rcons_cons -(atE (a :: s)) // (inj_eq (@letters_inj _ _)).
- by move=> [[[x i]|[x i]]|x] j //=; rewrite -[[:: h]](atE [::]) // (inj_eq (@letters_inj _ _)).
- by move=> [[[x i]|[x i]]|x] j //= => /andP[_ /eqP <-].
Qed.

(* the first L letters of a word followed by padding *)
Lemma padded_size (w : seq 'I_H) : size (take L (w ++ nseq L h0)) == L.
Proof.
rewrite size_take size_cat size_nseq.
by case: ltnP => // le; rewrite eqn_leq le leq_addl.
Qed.
Definition padded (w : seq 'I_H) : L.-tuple 'I_H := Tuple (padded_size w).

Lemma paddedE (w : seq 'I_H) : (size w <= L)%N -> tval (padded w) = w ++ nseq (L - size w) h0.
Proof.
move=> wL; rewrite /= -{2}(subnKC wL) nseqD -{1}(subnKC wL) takeD.
by rewrite take_size_cat // drop_size_cat // -nseqD addnC nseqD take_size_cat ?size_nseq.
Qed.

Lemma padded_cons h (w : seq 'I_H) : tval (padded (h :: w)) = take L (h :: padded w).
Proof. by rewrite /=; case: (L) => //= n; rewrite take_take. Qed.

Lemma query_word (w : seq 'I_H) :
  wprod (fun=> lV query_host) 0 w *m sel R (fun j : 'I_din => inl (inr (padded [::], j)) : C)
  = sel R (fun j : 'I_din => inl (inr (padded w, j)) : C).
Proof.
rewrite (@wprod_sel _ _ _ _ _ (fun s j => inl (inr (padded s, j)) : C) 0) //.
by move=> a s [[[x i]|[x i]]|x] j //= _; rewrite -padded_cons.
Qed.

Lemma query_rootE (u : C) (j : 'I_din) : query_root u j = (u == inl (inr (padded [::], j))).
Proof.
case: u => [[[x i]|[x i]]|x] //=; have -> // : nseq L h0 = padded [::].
by rewrite paddedE // subn0.
Qed.

Lemma query_query (w : seq 'I_H) h :
  wprod (fun=> lV query_host) 0 w *m lQ query_host h
  = sel R (fun j : 'I_din => inl (inr (padded w, j)) : C) *m pid_mx din.
Proof.
rewrite /= (reader_sel _ _ query_rootE); first by rewrite mulmxA query_word.
by move=> [[[x i]|[x i]]|x] j //= => /andP[_ /eqP <-].
Qed.

Lemma query_output (w : seq 'I_H) :
  wprod (fun=> lV query_host) 0 w *m query_out = sel R (fun j : 'I_din => inl (inr (padded w, j)) : C).
Proof. by rewrite /query_out (reader_sel_id _ query_rootE) query_word. Qed.

(* The program of a target *)

Variable T : nat -> layer R H d din.

(* Y: the layers from l on, all with head h0 *)
Definition later (l : nat) : 'M[R]_din := wprod (values T) l (nseq (L - l) h0).

Definition query_program : 'M[R]_(din, m) := program (fun i (u : C) => match u with
  | inl (inl (x, j)) =>
      (wprod (values T) 0 (prew x) *m (form T (tag x) (lastw x))^T *m (invmx (later (tag x)))^T) i j
  | inl (inr (x, j)) => wprod (values T) 0 x i j
  | inr _ => 0 end).

Lemma query_program_key l (w : l.-tuple 'I_H) h (lL : (l < L)%N) :
  query_program *m wprod (fun=> lV query_host) 0 w *m lK query_host h
  = wprod (values T) 0 w *m (form T l h)^T *m (invmx (later l))^T *m pid_mx din.
Proof.
rewrite -mulmxA (query_key w h lL) mulmxA program_sel; congr (_ *m _); apply/matrixP => i j.
rewrite mxE; pose B l (w : l.-tuple 'I_H) h :=
  wprod (values T) 0 w *m (form T l h)^T *m (invmx (later l))^T.
by rewrite -[_ *m _]/(B _ _ _) (mkwordK w h lL B).
Qed.

Lemma query_program_query l (w : l.-tuple 'I_H) h : (l <= L)%N ->
  query_program *m wprod (fun=> lV query_host) 0 w *m lQ query_host h
  = wprod (values T) 0 w *m later l *m pid_mx din.
Proof.
move=> lL; rewrite -mulmxA query_query mulmxA program_sel; congr (_ *m _); apply/matrixP => i j.
by rewrite mxE paddedE size_tuple // wprod_cat add0n size_tuple.
Qed.

Lemma query_program_output (w : L.-tuple 'I_H) :
  query_program *m wprod (fun=> lV query_host) 0 w *m query_out = wprod (values T) 0 w.
Proof.
rewrite -mulmxA query_output program_sel; apply/matrixP => i j.
by rewrite mxE paddedE size_tuple // subnn cats0.
Qed.

Hypothesis inv_h0 : forall l, (l < L)%N -> values T l h0 \in unitmx.

Lemma later_unit l : later l \in unitmx.
Proof.
rewrite /later; move e: (L - l)%N => c; elim: c l e => [|c IH] l e /=; first exact: unitmx1.
have lL : (l < L)%N by rewrite -subn_gt0 e.
by rewrite unitmx_mul inv_h0 // IH // subnS e.
Qed.

Lemma query_matches : (din <= d)%N -> matches_logits L (fun=> query_host) query_out T query_program.
Proof.
move=> dd; split=> [l w v h lL|w]; last exact: query_program_output.
rewrite query_program_query 1?ltnW // query_program_key // logits_pad //.
rewrite !trmx_mul !trmxK -!mulmxA (mulmxA (later l)) mulmxV ?later_unit // mul1mx.
by rewrite /form !mulmxA.
Qed.

End SharedQuery.

(* Sparsity *)

Lemma query_sparse (R : comUnitRingType) (H d din L k : nat) (h0 : 'I_H) :
  [/\ forall h, sparse01 (lQ (query_host R d din L k h0) h),
      forall h, sparse01 (lK (query_host R d din L k h0) h),
      forall h, sparse01 (lV (query_host R d din L k h0) h) &
      sparse01 (query_out R din L k h0)].
Proof.
have root b : sparse01 (reader R (@query_root H din L k h0) b).
  by apply: sparse01_reader => -[[[x i]|[x i]]|x] //= j j' /andP[_ /eqP <-] /andP[_ /eqP].
split=> [h|h|h|]; [exact: root| | |exact: root].
  by apply: sparse01_reader => -[[[x i]|[x i]]|x] //= j j' /andP[_ /eqP <-] /andP[_ /eqP].
apply: sparse01_rel => -[[[x i]|[x i]]|x] [[[x' i']|[x' i']]|x'] [[[y j]|[y j]]|y] //=.
  by move=> /andP[/eqP e /eqP ->] /andP[/eqP e' /eqP ->]; rewrite (letters_inj (etrans e (esym e'))).
by move=> /andP[/eqP e /eqP ->] /andP[/eqP e' /eqP ->]; rewrite (val_inj (etrans e (esym e'))).
Qed.

(* One tied {0,1} host of any embedding dimension m >= d_in (S + H^L) serves every untied target     *)
(* with d >= d_in and invertible M^(l,h0), by attention-matching, so functionally for attention that *)
(* depends on logits. The head h0 is any fixed one; it is part of the host.                          *)
Theorem shared_query_universal (R : comUnitRingType) (H d din L m : nat) (h0 : 'I_H) :
  (din <= d)%N -> (din * (word_count H L + H ^ L) <= m)%N ->
  exists (S : layer R H d m) (U : 'M[R]_(m, din)),
  [/\ forall h, sparse01 (lQ S h), forall h, sparse01 (lK S h), forall h, sparse01 (lV S h), sparse01 U &
      forall T : transformer R H d din,
        (forall l, (l < L)%N -> WV T l h0 *m WO T l h0 \in unitmx) ->
        exists E : 'M[R]_(din, m),
        matches_logits L (fun=> S) U (layers T) E /\ emulates_logits L (fun=> S) U (layers T) E].
Proof.
move=> dd /subnKC <-; move: (m - _)%N => k; rewrite -card_query_coord.
exists (query_host R d din L k h0), (query_out R din L k h0).
have [sQ sK sV sU] := query_sparse R d din L k h0; split=> // T inv_h0.
exists (query_program L k h0 (layers T)).
have matchT := @query_matches R H d din L k h0 (layers T) inv_h0 dd.
by split; last exact: matching_logits_emulates.
Qed.

(* The condition on the target: a polynomial in its weights, prod_l det (W_V W_O) of head h0, is a unit; *)
(* over a field, it does not vanish.                                                                    *)
Lemma query_servedP (R : comUnitRingType) (H d din L : nat) (h0 : 'I_H) (T : transformer R H d din) :
  (forall l, (l < L)%N -> WV T l h0 *m WO T l h0 \in unitmx)
  <-> \prod_(l < L) \det (WV T l h0 *m WO T l h0) \is a GRing.unit.
Proof.
elim: L => [|L IH]; first by rewrite big_ord0 unitr1.
rewrite big_ord_recr unitrM; split=> [inv|/andP[/IH inv invL] l].
  by rewrite -unitmxE inv // andbT; apply/IH => l /leqW; apply: inv.
by rewrite ltnS leq_eqVlt => /orP[/eqP ->|/inv //]; rewrite unitmxE.
Qed.

(* ... and it is not identically zero: with W_V and W_O partial identities it is 1 *)
Lemma query_served_ex (R : comUnitRingType) (H d din L : nat) (h0 : 'I_H) : (din <= d)%N ->
  exists T : transformer R H d din, \prod_(l < L) \det (WV T l h0 *m WO T l h0) = 1.
Proof.
move=> dd; exists (Transformer (fun _ _ => 0) (fun _ _ => 0) (fun _ _ => pid_mx din)
  (fun _ _ => pid_mx din)).
apply: big1 => l _ /=; rewrite mul_pid_mx minnn (minn_idPr dd) pid_mx_1.
exact: det1.
Qed.

(* Not all: where every M is zero the register is silent, and the host has no query left. *)
Theorem query_host_not_all (R : comUnitRingType) (H d din L k : nat) (h0 : 'I_H) :
  (0 < din <= d)%N -> (0 < L)%N ->
  exists T : transformer R H d din, (forall l h, values (layers T) l h = 0) /\ forall E : 'M[R]_(din, _),
    ~ matches_logits L (fun=> query_host R d din L k h0) (query_out R din L k h0) (layers T) E.
Proof.
move=> /andP[din0 dd] L0; exists (Transformer (fun _ _ => pid_mx din) (fun _ _ => pid_mx din)
  (fun _ _ => 0) (fun _ _ => 0)); split=> [l h|E [eQK eU]]; first exact: mul0mx.
have silent : E *m sel R (fun j : 'I_din => inl (inr (padded L h0 [::], j)) : query_coord H din L k) = 0.
  have -> : padded L h0 [::] = padded L h0 (nseq L h0).
    by apply: val_inj; rewrite [LHS]paddedE // [RHS]paddedE ?size_nseq //= subn0 subnn cats0.
  rewrite -(query_output R d) mulmxA (eU (nseq_tuple L h0)) /=.
  by case: (L) L0 => //= n _; rewrite {1}/values /= !mul0mx.
have := eQK 0%N [tuple] [tuple] h0 L0.
rewrite -[X in X *m _]mulmxA (query_query R d din L k h0 [::] h0) mulmxA silent !mul0mx /= !mul1mx.
rewrite -(mul1mx (pid_mx din)) logits_pad // mul1mx trmx1.
by move/matrixP/(_ (Ordinal din0) (Ordinal din0)); rewrite !mxE eqxx => /esym/eqP; rewrite oner_eq0.
Qed.
