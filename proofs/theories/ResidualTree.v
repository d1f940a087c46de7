(* The prefix-tree host for residual targets: {0,1} matrices, untied, m = M_res.     *)
(*                                                                            *)
(* Coordinates: for each word of length t < L over H+1 letters and each head that   *)
(* reads after it a block of width 2d (d for the query, d for the key), for each     *)
(* word of length L a block of width d_in, and any number of unused coordinates.     *)
(* R_V^(l,h) is the diagonal projection onto the blocks whose word has the letter h  *)
(* at position l; R_Q and R_K are the two halves of the blocks that their layer and  *)
(* head read; U is the identity on every leaf.                                  *)
(*                                                                            *)
(* R_w is the projection onto the words that agree with w at its nonzero letters, so *)
(* E R_w R_Q is a sum of blocks of E, and the Moebius transform (inclusion-exclusion *)
(* over the zero letters) finds the E that attains given right-hand sides.           *)
(*                                                                            *)
(* Headline theorems                                                           *)
(*   res_tree_all_rhs      every right-hand side is attained, over any ring         *)
(*   res_tree_left_inverse R_all has a left inverse (without unused coordinates it is *)
(*                         square: over a commutative ring, unimodular)            *)
(*   res_universal         for every m >= M_res there are {0,1} matrices with at    *)
(*                         most m nonzero entries each that match, hence emulate,   *)
(*                         every residual target                                *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Selection Residual ResidualWords ResidualSystem.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

(* diagonal projections onto the coordinates with a property *)
Section Keep.
Variables (R : ringType) (C : finType).

Definition keep (p : pred C) : 'M[R]_#|C| := rel_mx R (fun u v => (u == v) && p u).

Lemma mul_keep a (A : 'M[R]_(a, #|C|)) p : A *m keep p = \matrix_(i, u) (A i u * (p (enum_val u))%:R).
Proof.
apply/matrixP => i u; rewrite !mxE (bigD1 u) //= !mxE eqxx /= big1 ?addr0 // => v vu.
by rewrite mxE (inj_eq enum_val_inj) (negbTE vu) mulr0.
Qed.

Lemma keepT : keep xpredT = 1%:M.
Proof. by apply/matrixP => u v; rewrite !mxE (inj_eq enum_val_inj) andbT. Qed.

Lemma keep_mul p q : keep p *m keep q = keep (predI p q).
Proof.
rewrite mul_keep; apply/matrixP => u v; rewrite !mxE -natrM mulnb /=.
by have [->|] := eqVneq.
Qed.

End Keep.

Section Tree.
Variables (R : ringType) (H d din L k : nat).
Notation letter := (option 'I_H).

Definition res_coord := [finType of res_column H d din L + 'I_k].
Notation m := #|res_coord|.

Lemma card_res_coord : m = (res_matching_dimension H L d din + k)%N.
Proof. by rewrite card_sum card_res_column card_ord. Qed.

Definition word_of (u : res_coord) : seq letter :=
  match u with
  | inl (inl (x, _)) => (tagged x).1
  | inl (inr (w, _)) => w
  | inr _ => [::]
  end.

Definition relQK (q : 'I_d -> 'I_(d + d)) (l : nat) (h : 'I_H) (u : res_coord) (j : 'I_d) : bool :=
  if u is inl (inl (x, i)) then ((tag x == l :> nat) && ((tagged x).2 == h)) && (i == q j) else false.

Definition relU (u : res_coord) (j : 'I_din) : bool := if u is inl (inr (_, i)) then i == j else false.

Definition treeQK (q : 'I_d -> 'I_(d + d)) (l : nat) (h : 'I_H) : 'M[R]_(m, d) :=
  \matrix_(u, j) (relQK q l h (enum_val u) j)%:R.
Definition treeV (l : nat) (h : 'I_H) : 'M[R]_m := keep R (fun u => nth None (word_of u) l == Some h).
Definition treeU : 'M[R]_(m, din) := \matrix_(u, j) (relU (enum_val u) j)%:R.

Definition tree (l : nat) : layer R H d m :=
  Layer (treeQK (@lshift d d) l) (treeQK (@rshift d d) l) (treeV l).

(* R_w is the projection onto the words of which w is a subword *)
Lemma tree_wprod l0 (w : seq letter) :
  res_wprod (values tree) l0 w = keep R (fun u => subword w (drop l0 (word_of u))).
Proof.
elim: w l0 => [|o w IH] l0 /=; first by rewrite keepT.
have step u : behead (drop l0 (word_of u)) = drop l0.+1 (word_of u) by rewrite -drop1 drop_drop add1n.
rewrite IH; apply/matrixP => u v; case: o => [h|] /=.
  rewrite /values /= keep_mul !mxE; congr (_ && _)%:R.
  by rewrite /= step -nth0 nth_drop addn0 eq_sym.
by rewrite mul1mx !mxE step.
Qed.

(* what is read after R_w: a sum of blocks of E *)
Lemma tree_read q l h (lL : (l < L)%N) (w : l.-tuple letter) a (E : 'M[R]_(a, m)) :
  E *m res_wprod (values tree) 0 w *m treeQK q l h =
  \matrix_(i, j) \sum_(v : l.-tuple letter | subword w v)
                    E i (enum_rank (inl (inl (mkread v h lL, q j)) : res_coord)).
Proof.
rewrite tree_wprod mul_keep; apply/matrixP => i j; rewrite !mxE.
rewrite (reindex _ (onW_bij _ (@enum_rank_bij res_coord))) /= big_sumType /=.
rewrite [X in _ + X]big1 ?addr0 => [|x _]; last by rewrite !mxE !enum_rankK /= mulr0.
rewrite big_sumType /= [X in _ + X]big1 ?addr0 => [|x _]; last first.
  by rewrite !mxE !enum_rankK /=; case: x => ? ?; rewrite mulr0.
transitivity (\sum_(x : res_read H L | (tag x == l :> nat) && ((tagged x).2 == h))
    E i (enum_rank (inl (inl (x, q j)) : res_coord)) * (subword w (tagged x).1)%:R).
  rewrite [RHS]big_mkcond; transitivity (\sum_(x : res_read H L) \sum_(i' < d + d)
      E i (enum_rank (inl (inl (x, i')) : res_coord)) * (subword w (tagged x).1)%:R
        * (((tag x == l :> nat) && ((tagged x).2 == h)) && (i' == q j))%:R).
    by rewrite pair_big; apply: eq_bigr => -[x i'] _; rewrite !mxE !enum_rankK /= drop0.
  apply: eq_bigr => x _; rewrite (bigD1 (q j)) //= eqxx andbT big1 ?addr0 => [|i' /negbTE ->].
    by case: ifP; rewrite ?mulr1 ?mulr0.
  by rewrite andbF mulr0.
rewrite sum_read_at [RHS]big_mkcond; apply: eq_bigr => v _ /=.
by case: (subword w v); rewrite ?mulr1 ?mulr0.
Qed.

Lemma tree_leaf (w : L.-tuple letter) a (E : 'M[R]_(a, m)) :
  E *m res_wprod (values tree) 0 w *m treeU =
  \matrix_(i, j) \sum_(v : L.-tuple letter | subword w v) E i (enum_rank (inl (inr (v, j)) : res_coord)).
Proof.
rewrite tree_wprod mul_keep; apply/matrixP => i j; rewrite !mxE.
rewrite (reindex _ (onW_bij _ (@enum_rank_bij res_coord))) /= big_sumType /=.
rewrite [X in _ + X]big1 ?addr0 => [|x _]; last by rewrite !mxE !enum_rankK /= mulr0.
rewrite big_sumType /= [X in X + _]big1 ?add0r => [|x _]; last first.
  by rewrite !mxE !enum_rankK /=; case: x => ? ?; rewrite mulr0.
transitivity (\sum_(v : L.-tuple letter) \sum_(i' < din)
    E i (enum_rank (inl (inr (v, i')) : res_coord)) * (subword w v)%:R * (i' == j)%:R).
  by rewrite pair_big; apply: eq_bigr => -[v i'] _; rewrite !mxE !enum_rankK /= drop0.
rewrite [RHS]big_mkcond; apply: eq_bigr => v _.
rewrite (bigD1 j) //= eqxx big1 ?addr0 => [|i' /negbTE ->]; last by rewrite mulr0.
by rewrite mulr1; case: (subword w v); rewrite ?mulr1 ?mulr0.
Qed.

(* The embedding that attains given right-hand sides: their Moebius transform *)
Definition tree_embedding a (BQ BK : forall l, l.-tuple letter -> 'I_H -> 'M[R]_(a, d))
    (BV : L.-tuple letter -> 'M[R]_(a, din)) : 'M[R]_(a, m) :=
  \matrix_(i, u) match enum_val u : res_coord with
  | inl (inl (x, j)) => mobius (fun v : (tag x).-tuple letter => match split j with
       | inl j => BQ (tag x) v (tagged x).2 i j
       | inr j => BK (tag x) v (tagged x).2 i j end) (tagged x).1
  | inl (inr (w, j)) => mobius (fun v : L.-tuple letter => BV v i j) w
  | inr _ => 0 end.

(* Any right-hand sides, with any number of rows, are attained, over any ring *)
Theorem res_tree_all_rhs a (BQ BK : forall l, l.-tuple letter -> 'I_H -> 'M[R]_(a, d))
    (BV : L.-tuple letter -> 'M[R]_(a, din)) (E := tree_embedding BQ BK BV) :
  [/\ forall l (w : l.-tuple letter) h, (l < L)%N ->
        E *m res_wprod (values tree) 0 w *m lQ (tree l) h = BQ l w h,
      forall l (w : l.-tuple letter) h, (l < L)%N ->
        E *m res_wprod (values tree) 0 w *m lK (tree l) h = BK l w h &
      forall w : L.-tuple letter, E *m res_wprod (values tree) 0 w *m treeU = BV w].
Proof.
split=> [l w h lL|l w h lL|w].
- rewrite (tree_read _ _ lL); apply/matrixP => i j; rewrite mxE -[RHS](mobius_sum (fun v => BQ l v h i j)).
  by apply: eq_bigr => v _; rewrite mxE enum_rankK /= (unsplitK (inl j)).
- rewrite (tree_read _ _ lL); apply/matrixP => i j; rewrite mxE -[RHS](mobius_sum (fun v => BK l v h i j)).
  by apply: eq_bigr => v _; rewrite mxE enum_rankK /= (unsplitK (inr j)).
- rewrite tree_leaf; apply/matrixP => i j; rewrite mxE -[RHS](mobius_sum (fun v => BV v i j)).
  by apply: eq_bigr => v _; rewrite mxE enum_rankK.
Qed.

(* so every residual target is matched, whatever the rank of its value matrices *)
Corollary tree_matches (T : nat -> layer R H d din) : exists E, res_matches L tree treeU T E.
Proof.
eexists; exact: res_tree_all_rhs
  (fun l w h => res_wprod (values T) 0 w *m lQ (T l) h)
  (fun l w h => res_wprod (values T) 0 w *m lK (T l) h) (fun w => res_wprod (values T) 0 w).
Qed.

(* R_all has a left inverse; without unused coordinates (k = 0) both are square *)
Theorem res_tree_left_inverse : exists B, B *m res_Rall L tree treeU = 1%:M.
Proof.
have [BQ [BK [BV ->]]] := res_packE (1%:M : 'M[R]_#|res_column H d din L|).
exists (tree_embedding BQ BK BV); have [eQ eK eV] := res_tree_all_rhs BQ BK BV.
by rewrite mul_res_pack; apply: eq_res_pack => *; rewrite mulmxA ?eQ ?eK ?eV.
Qed.
(* {0,1} entries, and at most one nonzero entry in each row *)

Lemma tree_01 l h : [/\ is01 (lQ (tree l) h), is01 (lK (tree l) h) & is01 (lV (tree l) h)].
Proof. by split; apply: is01_bool. Qed.

Lemma treeQK_nnz q l h : injective q -> (nnz (treeQK q l h) <= m)%N.
Proof.
move=> q_inj; apply: nnz_row => i j j'; rewrite !mxE => /natr_neq0 + /natr_neq0.
by case: (enum_val i) => [[[x b]|]|] //= /andP[_ /eqP->] /andP[_ /eqP/q_inj].
Qed.

Lemma tree_nnz l h : [/\ nnz (lQ (tree l) h) <= m, nnz (lK (tree l) h) <= m & nnz (lV (tree l) h) <= m]%N.
Proof.
split; first exact: treeQK_nnz (@lshift_inj _ _); first exact: treeQK_nnz (@rshift_inj _ _).
apply: nnz_row => i j j'; rewrite !mxE => /natr_neq0/andP[/eqP e _] /natr_neq0/andP[/eqP e' _].
by apply: enum_val_inj; rewrite -e -e'.
Qed.

Lemma treeU_01_nnz : is01 treeU /\ (nnz treeU <= m)%N.
Proof.
split; first exact: is01_bool.
apply: nnz_row => i j j'; rewrite !mxE => /natr_neq0 + /natr_neq0.
by case: (enum_val i) => [[|[x b]]|] //= /eqP-> /eqP.
Qed.

End Tree.

(* For every m >= M_res, over any ring: {0,1} matrices with at most m nonzero entries each,     *)
(* such that some E matches, and so emulates under every attention map, any given residual      *)
(* target. (A target in the paper's sense is T = layers T'.)                                 *)
Theorem res_universal (R : ringType) (H d din L m : nat) : (res_matching_dimension H L d din <= m)%N ->
  exists (S : nat -> layer R H d m) (U : 'M[R]_(m, din)),
  [/\ forall l h, [/\ is01 (lQ (S l) h), is01 (lK (S l) h) & is01 (lV (S l) h)],
      forall l h, [/\ nnz (lQ (S l) h) <= m, nnz (lK (S l) h) <= m & nnz (lV (S l) h) <= m]%N,
      is01 U /\ (nnz U <= m)%N,
      res_universal_by_matching L S U &
      forall T : nat -> layer R H d din, exists E, res_matches L S U T E /\ res_emulates L S U T E].
Proof.
move=> /subnKC <-; set k := (m - _)%N; rewrite -card_res_coord.
exists (tree R H d din L k), (treeU R H d din L k); split=> [l h|l h||T|T].
- exact: tree_01.
- exact: tree_nnz.
- exact: treeU_01_nnz.
- exact: tree_matches.
- by have [E EP] := tree_matches L k T; exists E; split=> //; apply: res_matching_emulates.
Qed.
