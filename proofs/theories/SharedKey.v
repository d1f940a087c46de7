(* The shared-key host: all targets with d >= d_in, below the matching dimension M for H >= 2.    *)
(*                                                                                                *)
(* The logits q.k only see the form A = W_Q W_K^T, so a host may hold x A as the query and x      *)
(* itself as the key. The keys of all heads are then one block, and it is also the output:        *)
(* d_in (1 + 2 S) coordinates suffice, S the number of nonempty head words of length at most L.   *)
(*                                                                                                *)
(* Coordinates: a query trie, d_in for every word of length 1..L, and a stream trie, d_in for     *)
(* every word of length 0..L. The host is tied: the value matrix of head h sends block w to       *)
(* block (h, w) in both tries (as a map on columns), and blocks of length L to zero. The query    *)
(* reader of h reads block (h) of the query trie; every key reader, and the output U, reads the   *)
(* root of the stream trie. Readers of d > d_in columns are padded with zeros. The program of a   *)
(* target writes M_w A^(l,h) into the query block (w, h) and M_w into the stream block w. Then    *)
(*   (E R_w R_Q) (E R_v R_K)^T = M_w A M_v^T.                                                     *)
(*                                                                                                *)
(*   shared_key_universal      every m >= d_in (1 + 2 S), d >= d_in: one tied {0,1} host, with at *)
(*                             most m nonzeros per matrix, serves every untied target by          *)
(*                             ATTENTION-MATCHING, hence functionally for every attention that    *)
(*                             depends on the logits alone                                        *)
(*   key_matches               the program above, for targets with arbitrary value matrices       *)
(*   looped_sparse_universal   so the statement of thm:looped_sparse_universal_transformer, with  *)
(*                             its m >= (1 + S) max(2 d, d_in), is true for d >= d_in             *)
(*                                                                                                *)
(* The notion matters. The queries and keys of the host are not the target's: what is proved here *)
(* does not survive attention that looks at queries and keys separately, such as rotary positions *)
(* (RoPE) or normalised queries and keys.                                                         *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words Selection Emulation Trie.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

Section SharedKey.
Variables (R : comRingType) (H d din L k : nat).

(* the query trie, the stream trie (None is the root), and k coordinates without use *)
Definition key_coord := [finType of word H L * 'I_din + option (word H L) * 'I_din + 'I_k].
Notation C := key_coord.
Notation m := #|C|.

Lemma card_key_coord : m = (din * (1 + 2 * word_count H L) + k)%N.
Proof.
rewrite !card_sum !card_prod card_option card_word !card_ord.
by rewrite -mulnDl addnS addnn -mul2n mulnC.
Qed.

Definition key_relV (h : 'I_H) : rel C := fun u v =>
  match u, v with
  | inl (inl (x, i)), inl (inl (y, j)) => (letters x == h :: letters y) && (i == j)
  | inl (inr (x, i)), inl (inr (y, j)) => (letters0 x == h :: letters0 y) && (i == j)
  | _, _ => false
  end.

Definition key_relQ (h : 'I_H) (u : C) (j : nat) : bool :=
  if u is inl (inl (x, i)) then (letters x == [:: h]) && (i == j :> nat) else false.

Definition key_root (u : C) (j : nat) : bool :=
  if u is inl (inr (None, i)) then i == j :> nat else false.

Definition key_host : layer R H d m :=
  Layer (fun h => reader R (key_relQ h) d) (fun=> reader R key_root d) (fun h => rel_mx R (key_relV h)).
Definition key_out : 'M[R]_(m, din) := reader R key_root din.

(* Where the readers look after a word *)

Lemma key_query l (w : l.-tuple 'I_H) h (lL : (l < L)%N) :
  wprod (fun=> lV key_host) 0 w *m lQ key_host h
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
- by move=> [[[x i]|[[x|] i]]|x] j //= => [/andP[_ /eqP <-]].
Qed.

(* in the stream trie words are read from the root, the empty word *)
Definition stream_at (s : seq 'I_H) : option (word H L) := [pick w | letters w == s].

Lemma letters_stream_at s : (size s <= L)%N -> letters0 (stream_at s) = s.
Proof.
move=> sL; rewrite /stream_at; case: pickP => [x /eqP //|no].
by case: s sL no => // h s sL; have [x e] := letters_ex (s := h :: s) sL => /(_ x); rewrite e eqxx.
Qed.

Lemma stream_word (w : seq 'I_H) : (size w <= L)%N ->
  wprod (fun=> lV key_host) 0 w *m sel R (fun j : 'I_din => inl (inr (None, j)) : C)
  = sel R (fun j : 'I_din => inl (inr (stream_at w, j)) : C).
Proof.
move=> wL; have <- : stream_at [::] = None by apply: letters0_inj; rewrite letters_stream_at.
rewrite (@wprod_sel _ _ _ _ _ (fun s j => inl (inr (stream_at s, j)) : C) 0) //.
move=> a s [[[x i]|[x i]]|x] j //= sw; have sL := leq_trans sw wL.
have e : letters0 (stream_at (a :: s)) = a :: s by rewrite letters_stream_at.
by rewrite letters_stream_at 1?ltnW // -[in LHS]e (inj_eq (@letters0_inj _ _)).
Qed.

Lemma key_key (w : seq 'I_H) h : (size w <= L)%N ->
  wprod (fun=> lV key_host) 0 w *m lK key_host h
  = sel R (fun j : 'I_din => inl (inr (stream_at w, j)) : C) *m pid_mx din.
Proof.
move=> wL; rewrite /= (@reader_sel _ _ _ _ _ (fun j => inl (inr (None, j)) : C)).
- by rewrite mulmxA stream_word.
- by move=> [[[x i]|[[x|] i]]|x] j.
- by move=> [[[x i]|[[x|] i]]|x] j //= => [/eqP <-].
Qed.

Lemma key_output (w : L.-tuple 'I_H) :
  wprod (fun=> lV key_host) 0 w *m key_out = sel R (fun j : 'I_din => inl (inr (stream_at w, j)) : C).
Proof.
rewrite /key_out (@reader_sel_id _ _ _ _ (fun j => inl (inr (None, j)) : C)).
  by rewrite stream_word ?size_tuple.
by move=> [[[x i]|[[x|] i]]|x] j.
Qed.

(* The program of a target *)

Variable T : nat -> layer R H d din.

Definition key_program : 'M[R]_(din, m) := program (fun i (u : C) => match u with
  | inl (inl (x, j)) => (wprod (values T) 0 (prew x) *m form T (tag x) (lastw x)) i j
  | inl (inr (x, j)) => wprod (values T) 0 (letters0 x) i j
  | inr _ => 0 end).

Lemma key_program_query l (w : l.-tuple 'I_H) h (lL : (l < L)%N) :
  key_program *m wprod (fun=> lV key_host) 0 w *m lQ key_host h
  = wprod (values T) 0 w *m form T l h *m pid_mx din.
Proof.
rewrite -mulmxA (key_query w h lL) mulmxA program_sel; congr (_ *m _); apply/matrixP => i j.
rewrite mxE; pose B l (w : l.-tuple 'I_H) h := wprod (values T) 0 w *m form T l h.
by rewrite -[_ *m _]/(B _ _ _) (mkwordK w h lL B).
Qed.

Lemma key_program_key (w : seq 'I_H) h : (size w <= L)%N ->
  key_program *m wprod (fun=> lV key_host) 0 w *m lK key_host h
  = wprod (values T) 0 w *m pid_mx din.
Proof.
move=> wL; rewrite -mulmxA key_key // mulmxA program_sel; congr (_ *m _).
by apply/matrixP => i j; rewrite mxE letters_stream_at.
Qed.

Lemma key_program_output (w : L.-tuple 'I_H) :
  key_program *m wprod (fun=> lV key_host) 0 w *m key_out = wprod (values T) 0 w.
Proof.
rewrite -mulmxA key_output program_sel.
by apply/matrixP => i j; rewrite mxE letters_stream_at ?size_tuple.
Qed.

Lemma key_matches : (din <= d)%N -> matches_logits L (fun=> key_host) key_out T key_program.
Proof.
move=> dd; split=> [l w v h lL|w]; last exact: key_program_output.
rewrite key_program_query // key_program_key ?size_tuple 1?ltnW // logits_pad //.
by rewrite [in RHS]trmx_mul !mulmxA.
Qed.

End SharedKey.

(* Sparsity *)

Lemma key_sparse (R : comRingType) (H d din L k : nat) :
  [/\ forall h, sparse01 (lQ (key_host R H d din L k) h),
      forall h, sparse01 (lK (key_host R H d din L k) h),
      forall h, sparse01 (lV (key_host R H d din L k) h) &
      sparse01 (key_out R H din L k)].
Proof.
have root b : sparse01 (reader R (@key_root H din L k) b).
  by apply: sparse01_reader => -[[[x i]|[[x|] i]]|x] //= j j' /eqP <- /eqP.
split=> [h|h|h|]; [|exact: root| |exact: root].
  by apply: sparse01_reader => -[[[x i]|[x i]]|x] //= j j' /andP[_ /eqP <-] /andP[_ /eqP].
apply: sparse01_rel => -[[[x i]|[x i]]|x] [[[x' i']|[x' i']]|x'] [[[y j]|[y j]]|y] //=.
  by move=> /andP[/eqP e /eqP ->] /andP[/eqP e' /eqP ->]; rewrite (letters_inj (etrans e (esym e'))).
by move=> /andP[/eqP e /eqP ->] /andP[/eqP e' /eqP ->]; rewrite (letters0_inj (etrans e (esym e'))).
Qed.

(* One tied {0,1} host of any embedding dimension m >= d_in (1 + 2 S) serves every untied target *)
(* with d >= d_in, by attention-matching, so functionally for attention that depends on logits.  *)
Theorem shared_key_universal (R : comRingType) (H d din L m : nat) :
  (din <= d)%N -> (din * (1 + 2 * word_count H L) <= m)%N ->
  exists (S : layer R H d m) (U : 'M[R]_(m, din)),
  [/\ forall h, sparse01 (lQ S h), forall h, sparse01 (lK S h), forall h, sparse01 (lV S h), sparse01 U &
      forall T : transformer R H d din, exists E : 'M[R]_(din, m),
        matches_logits L (fun=> S) U (layers T) E /\ emulates_logits L (fun=> S) U (layers T) E].
Proof.
move=> dd /subnKC <-; move: (m - _)%N => k; rewrite -card_key_coord.
exists (key_host R H d din L k), (key_out R H din L k).
have [sQ sK sV sU] := key_sparse R H d din L k; split=> // T; exists (key_program L k (layers T)).
by have matchT := key_matches L k (layers T) dd; split; last exact: matching_logits_emulates.
Qed.

(* From the width (1 + S) max(2 d, d_in) of the paper's looped sparse theorem on such a host exists: for *)
(* d >= d_in its statement holds, functionally, for attention that depends on logits. (Matching would    *)
(* need m >= M, which can be larger.)                                                                    *)
Lemma shared_key_dimension (H d din L : nat) : (din <= d)%N ->
  (din * (1 + 2 * word_count H L) <= (1 + word_count H L) * maxn (2 * d) din)%N.
Proof.
move=> dd; rewrite [leqRHS]mulnC; apply: (@leq_trans (2 * d * (1 + word_count H L))).
  by rewrite -mulnA mulnCA leq_mul // mulnDr leq_add2r.
by rewrite leq_mul2r leq_maxl orbT.
Qed.

Corollary looped_sparse_universal (R : comRingType) (H d din L m : nat) :
  (din <= d)%N -> ((1 + word_count H L) * maxn (2 * d) din <= m)%N ->
  exists (S : layer R H d m) (U : 'M[R]_(m, din)),
  [/\ forall h, sparse01 (lQ S h), forall h, sparse01 (lK S h), forall h, sparse01 (lV S h), sparse01 U &
      forall T : transformer R H d din, exists E : 'M[R]_(din, m),
        matches_logits L (fun=> S) U (layers T) E /\ emulates_logits L (fun=> S) U (layers T) E].
Proof. by move=> dd /(leq_trans (shared_key_dimension H L dd)); apply: shared_key_universal. Qed.
