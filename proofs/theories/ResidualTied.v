(* The tied (looped) host for tied residual targets: m = 2 d S + d_in (1 + S).        *)
(*                                                                            *)
(* With tied value matrices R_w does not see the zero letters of w: it is the product   *)
(* along the word of its nonzero letters, in order. So the matching equations of a tied *)
(* target are indexed by head words without zeros. Coordinates: for each nonempty word  *)
(* of length at most L over H heads a block of width 2d (d for the query, d for the     *)
(* key), for each word of length 0, ..., L a block of width d_in, and any number of      *)
(* unused coordinates. R_V^h sends the block of w to the block of (h,w); R_Q^h and R_K^h *)
(* are the two halves of the block (h), U is the block of the empty word.             *)
(*                                                                            *)
(* Headline theorem                                                            *)
(*   res_tied_universal   for every m >= 2 d S + d_in (1 + S) there is a tied {0,1} host, *)
(*                        at most m nonzero entries in each matrix, that matches, hence   *)
(*                        emulates, every tied residual target, over any ring           *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words Selection Trie Residual.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

(* 2 d S + d_in (1 + S) *)
Definition res_tied_dimension (H L d din : nat) : nat :=
  (2 * d * word_count H L + din * (word_count H L).+1)%N.

(* the word without its zero letters *)
Definition squeeze H (w : seq (option 'I_H)) : seq 'I_H := pmap id w.

Lemma size_squeeze H (w : seq (option 'I_H)) : (size (squeeze w) <= size w)%N.
Proof. by rewrite size_pmap count_size. Qed.

Lemma res_wprod_tied (R : ringType) H d D (lay : layer R H d D) l0 (w : seq (option 'I_H)) :
  res_wprod (values (fun=> lay)) l0 w = wprod (values (fun=> lay)) 0 (squeeze w).
Proof.
have shift l (v : seq 'I_H) : wprod (values (fun=> lay)) l v = wprod (values (fun=> lay)) 0 v.
  by elim: v l => //= h v IH l; rewrite IH [in RHS]IH.
elim: w l0 => [|[h|] w IH] l0 //=; rewrite IH; first by rewrite -(shift 1%N).
by rewrite mul1mx.
Qed.

Section Trie.
Variables (R : ringType) (H d din L k : nat).
Notation word0 := (option (word H L)).

Definition tied_coord := [finType of word H L * 'I_(d + d) + word0 * 'I_din + 'I_k].
Notation m := #|tied_coord|.

Lemma card_tied_coord : m = (res_tied_dimension H L d din + k)%N.
Proof.
by rewrite !card_sum !card_prod card_option card_word !card_ord addnn -mul2n [(_ * (2 * d))%N]mulnC
           [(_ * din)%N]mulnC.
Qed.

Definition relV (h : 'I_H) : rel tied_coord := fun u v =>
  match u, v with
  | inl (inl (x, i)), inl (inl (y, j)) => (letters x == h :: letters y) && (i == j)
  | inl (inr (x, i)), inl (inr (y, j)) => (letters0 x == h :: letters0 y) && (i == j)
  | _, _ => false
  end.

Definition relQK (q : 'I_d -> 'I_(d + d)) (h : 'I_H) (u : tied_coord) (j : 'I_d) : bool :=
  if u is inl (inl (x, i)) then (letters x == [:: h]) && (i == q j) else false.

Definition relU (u : tied_coord) (j : 'I_din) : bool :=
  if u is inl (inr (None, i)) then i == j else false.

Definition trieQK q h : 'M[R]_(m, d) := \matrix_(u, j) (relQK q h (enum_val u) j)%:R.
Definition trieU : 'M[R]_(m, din) := \matrix_(u, j) (relU (enum_val u) j)%:R.
Definition trie : layer R H d m :=
  Layer (trieQK (@lshift d d)) (trieQK (@rshift d d)) (fun h => rel_mx R (relV h)).

Lemma trie_read (q : 'I_d -> 'I_(d + d)) l0 p h (w : word H L) : letters w = rcons p h ->
  wprod (values (fun=> trie)) l0 p *m trieQK q h = sel R (fun j => inl (inl (w, q j)) : tied_coord).
Proof.
elim: p l0 w => [|a p IH] l0 w e /=.
  rewrite mul1mx; apply/matrixP => u j; rewrite !mxE.
  by case: (enum_val u) => [[[x i]|[x i]]|x] //=; rewrite -[[:: h]]e (inj_eq (@letters_inj _ _)).
have [w' e'] : exists w' : word H L, letters w' = rcons p h.
  by apply: letters_ex; have := letters_size w; rewrite e /= size_rcons /= => /ltnW.
rewrite -mulmxA (IH _ w' e'); apply: rel_mx_sel => u j.
by case: u => [[[x i]|[x i]]|x] //=; rewrite e' -[a :: _]e (inj_eq (@letters_inj _ _)).
Qed.

Lemma trie_root l0 (w : word0) :
  wprod (values (fun=> trie)) l0 (letters0 w) *m trieU = sel R (fun j => inl (inr (w, j)) : tied_coord).
Proof.
have [p e] : exists p, p = letters0 w by exists (letters0 w).
rewrite -e; elim: p l0 w e => [|a p IH] l0 w e /=.
  have -> : w = None by apply: letters0_inj.
  rewrite mul1mx; apply/matrixP => u j; rewrite !mxE.
  by case: (enum_val u) => [[[x i]|[[x|] i]]|x].
have [w' e'] : exists w' : word0, letters0 w' = p.
  apply: letters0_ex; case: w e => [w|//] /= e.
  by have /andP[_] := letters_size w; rewrite -e => /ltnW.
rewrite -mulmxA (IH _ w') //; apply: rel_mx_sel => u j.
by case: u => [[[x i]|[x i]]|x] //=; rewrite e' e (inj_eq (@letters0_inj _ _)).
Qed.

(* any right-hand sides, one for each word without zeros *)
Lemma trie_all_rhs a (BQ BK : seq 'I_H -> 'I_H -> 'M[R]_(a, d)) (BV : seq 'I_H -> 'M[R]_(a, din)) :
  exists E : 'M[R]_(a, m),
  [/\ forall p h, (size p < L)%N -> E *m wprod (values (fun=> trie)) 0 p *m lQ trie h = BQ p h,
      forall p h, (size p < L)%N -> E *m wprod (values (fun=> trie)) 0 p *m lK trie h = BK p h &
      forall p, (size p <= L)%N -> E *m wprod (values (fun=> trie)) 0 p *m trieU = BV p].
Proof.
exists (\matrix_(i, u) match enum_val u : tied_coord with
  | inl (inl (w, j)) => match split j with
       | inl j => BQ (prew w) (lastw w) i j
       | inr j => BK (prew w) (lastw w) i j end
  | inl (inr (w, j)) => BV (letters0 w) i j
  | inr _ => 0 end).
have key (p : seq 'I_H) h : (size p < L)%N -> exists w : word H L,
    [/\ letters w = rcons p h, prew w = p :> seq _ & lastw w = h].
  move=> pL; have [w e] : exists w : word H L, letters w = rcons p h by apply: letters_ex; rewrite size_rcons.
  by exists w; move: (lettersE w); rewrite e => /rcons_inj[-> ->].
split=> [p h pL|p h pL|p pL].
- have [w [e ep eh]] := key p h pL; rewrite -mulmxA (trie_read _ _ e) mul_sel; apply/matrixP => i j.
  by rewrite !mxE enum_rankK (unsplitK (inl j)) ep eh.
- have [w [e ep eh]] := key p h pL; rewrite -mulmxA (trie_read _ _ e) mul_sel; apply/matrixP => i j.
  by rewrite !mxE enum_rankK (unsplitK (inr j)) ep eh.
- have [w <-] := letters0_ex pL; rewrite -mulmxA trie_root mul_sel; apply/matrixP => i j.
  by rewrite !mxE enum_rankK.
Qed.

Lemma trie_matches (lay : layer R H d din) : exists E, res_matches L (fun=> trie) trieU (fun=> lay) E.
Proof.
have [E [eQ eK eV]] := trie_all_rhs (fun p h => wprod (values (fun=> lay)) 0 p *m lQ lay h)
  (fun p h => wprod (values (fun=> lay)) 0 p *m lK lay h) (fun p => wprod (values (fun=> lay)) 0 p).
have sz l (w : l.-tuple (option 'I_H)) : (size (squeeze w) <= l)%N 
  by rewrite -[X in (_ <= X)%N](size_tuple w) size_squeeze.
exists E; split=> [l w h lL|l w h lL|w]; rewrite !res_wprod_tied.
- by rewrite eQ // (leq_ltn_trans (sz l w)).
- by rewrite eK // (leq_ltn_trans (sz l w)).
- by rewrite eV.
Qed.

Lemma trie_01 h : [/\ is01 (lQ trie h), is01 (lK trie h) & is01 (lV trie h)].
Proof. by split; apply: is01_bool. Qed.

Lemma trieQK_nnz q h : injective q -> (nnz (trieQK q h) <= m)%N.
Proof.
move=> q_inj; apply: nnz_row => i j j'; rewrite !mxE => /natr_neq0 + /natr_neq0.
by case: (enum_val i) => [[[x b]|]|] //= /andP[_ /eqP->] /andP[_ /eqP/q_inj].
Qed.

Lemma trie_nnz h : [/\ nnz (lQ trie h) <= m, nnz (lK trie h) <= m & nnz (lV trie h) <= m]%N.
Proof.
split; first exact: trieQK_nnz (@lshift_inj _ _); first exact: trieQK_nnz (@rshift_inj _ _).
apply: nnz_col => i i' j; rewrite !mxE => /natr_neq0 r1 /natr_neq0 r2.
apply: enum_val_inj; move: r1 r2.
case: (enum_val i) (enum_val i') (enum_val j) => [[[x b]|[x b]]|?] [[[y c]|[y c]]|?] [[[z e]|[z e]]|?] //=;
  move=> /andP[/eqP e1 /eqP->] /andP[/eqP e2 /eqP->].
  by rewrite (letters_inj (etrans e1 (esym e2))).
by rewrite (letters0_inj (etrans e1 (esym e2))).
Qed.

Lemma trieU_01_nnz : is01 trieU /\ (nnz trieU <= m)%N.
Proof.
split; first exact: is01_bool.
apply: nnz_row => i j j'; rewrite !mxE => /natr_neq0 + /natr_neq0.
by case: (enum_val i) => [[|[[x|] b]]|] //= /eqP-> /eqP.
Qed.

End Trie.

(* One tied {0,1} host for every tied residual target, by matching and so under every attention *)
(* map, for every m >= 2 d S + d_in (1 + S), over any ring                                   *)
Theorem res_tied_universal (R : ringType) (H d din L m : nat) : (res_tied_dimension H L d din <= m)%N ->
  exists (host : layer R H d m) (U : 'M[R]_(m, din)),
  [/\ forall h, [/\ is01 (lQ host h), is01 (lK host h) & is01 (lV host h)],
      forall h, [/\ nnz (lQ host h) <= m, nnz (lK host h) <= m & nnz (lV host h) <= m]%N,
      is01 U /\ (nnz U <= m)%N &
      forall target : layer R H d din, exists E : 'M[R]_(din, m),
        res_matches L (fun=> host) U (fun=> target) E /\ res_emulates L (fun=> host) U (fun=> target) E].
Proof.
move=> /subnKC <-; set k := (m - _)%N; rewrite -card_tied_coord.
exists (trie R H d din L k), (trieU R H d din L k); split=> [h|h||lay].
- exact: trie_01.
- exact: trie_nnz.
- exact: trieU_01_nnz.
- by have [E EP] := trie_matches L k lay; exists E; split=> //; apply: res_matching_emulates.
Qed.
