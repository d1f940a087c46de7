(* The prefix-tree projection: an untied host with entries 0 and 1 and m = M.                              *)
(* It is the construction of thm:designed-R, repaired, and it proves thm:sparse_universal_transformer.     *)
(*                                                                                                         *)
(* Coordinates of the host (the type `coordinate`): for every word of length below L and every head that   *)
(* reads there a block of width 2 d, its Q half and its K half; for every word of length L a leaf of width *)
(* d_in; and k unused ones.                                                                                *)
(*                                                                                                         *)
(*   tree_V l h             the diagonal projection onto the blocks whose word has letter h at position l  *)
(*   tree_Q l h, tree_K l h the Q (K) half of every block at depth l that h reads                          *)
(*   tree_U                 the identity on every leaf                                                     *)
(*                                                                                                         *)
(*   wprod_tree             R_w is the projection onto the blocks of whose word w is a prefix              *)
(*   prefix_tree_Rall       R_all selects the used coordinates, one a column                               *)
(*   prefix_tree_permutation    so it is a permutation matrix when k = 0                                   *)
(*   prefix_tree_any_rhs    every right-hand side of the matching equations is attained                    *)
(*   prefix_tree_universal  for every m >= M such a host, with at most m nonzeros in each matrix, is       *)
(*                          universal by matching                                                          *)
(*   prefix_tree_emulates   hence functionally universal, one E serving every attention map                *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words MatchingSystem Emulation Selection.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

Section PrefixTree.
Variables (R : ringType) (H d din L k : nat).

(* the block (w, h) is the word w h: its reader h is the last letter *)
Definition coordinate := [finType of column H d din L + 'I_k].

Lemma card_coordinate : #|coordinate| = (matching_dimension H L d din + k)%N.
Proof. by rewrite card_sum card_column card_ord. Qed.

(* the word of the block or leaf that a coordinate belongs to *)
Definition branch (u : coordinate) : seq 'I_H :=
  match u with
  | inl (inl (w, _)) => prew w
  | inl (inr (v, _)) => v
  | inr _ => [::] end.

Definition has_letter (p : seq 'I_H) (l : nat) (h : 'I_H) : bool := (l < size p)%N && (nth h p l == h).

Definition in_half (q : 'I_d -> 'I_(d + d)) (l : nat) (h : 'I_H) (u : coordinate) (j : 'I_d) : bool :=
  if u is inl (inl (w, i)) then [&& tag w == l :> nat, lastw w == h & i == q j] else false.

Definition in_leaf (u : coordinate) (j : 'I_din) : bool :=
  if u is inl (inr (_, i)) then i == j else false.

Definition tree_V (l : nat) (h : 'I_H) : 'M[R]_#|coordinate| :=
  diag_mx (\row_u (has_letter (branch (enum_val u)) l h)%:R).
Definition tree_Q (l : nat) (h : 'I_H) : 'M[R]_(#|coordinate|, d) :=
  \matrix_(u, j) (in_half (@lshift d d) l h (enum_val u) j)%:R.
Definition tree_K (l : nat) (h : 'I_H) : 'M[R]_(#|coordinate|, d) :=
  \matrix_(u, j) (in_half (@rshift d d) l h (enum_val u) j)%:R.
Definition tree_U : 'M[R]_(#|coordinate|, din) := \matrix_(u, j) (in_leaf (enum_val u) j)%:R.

Definition tree (l : nat) : layer R H d #|coordinate| := Layer (tree_Q l) (tree_K l) (tree_V l).

(* Entries and nonzeros *)

Lemma tree_01 l h : [/\ is01 (tree_Q l h), is01 (tree_K l h) & is01 (tree_V l h)].
Proof.
split; try exact: is01_bool.
by move=> i j; rewrite !mxE; case: (i == j); case: (has_letter _ _ _); rewrite ?mulr0n; [right|left..].
Qed.

Lemma tree_U_01 : is01 tree_U.
Proof. exact: is01_bool. Qed.

Lemma tree_nnz l h :
  [/\ nnz (tree_Q l h) <= #|coordinate|, nnz (tree_K l h) <= #|coordinate|
    & nnz (tree_V l h) <= #|coordinate|]%N.
Proof.
split; apply: nnz_row => i j j'.
- rewrite !mxE => /natr_neq0 + /natr_neq0.
  by case: (enum_val i) => [[[w a]|]|] //= /and3P[_ _ /eqP->] /and3P[_ _ /eqP/lshift_inj].
- rewrite !mxE => /natr_neq0 + /natr_neq0.
  by case: (enum_val i) => [[[w a]|]|] //= /and3P[_ _ /eqP->] /and3P[_ _ /eqP/rshift_inj].
- by rewrite !mxE; case: (i =P j) => [<-|_]; case: (i =P j') => [<-|_]; rewrite ?mulr0n ?eqxx.
Qed.

Lemma tree_U_nnz : (nnz tree_U <= #|coordinate|)%N.
Proof.
apply: nnz_row => i j j'; rewrite !mxE => /natr_neq0 + /natr_neq0.
by case: (enum_val i) => [[|[w a]]|] //= /eqP-> /eqP.
Qed.

(* Products of projections are projections *)

Lemma prefix_has_letter (h : 'I_H) t l p :
  prefix (h :: t) (drop l p) = has_letter p l h && prefix t (drop l.+1 p).
Proof.
rewrite /has_letter; case: ltnP => [lp|pl]; last by rewrite drop_oversize.
by rewrite (drop_nth h lp) /= eq_sym.
Qed.

Theorem wprod_tree l t :
  wprod tree_V l t = diag_mx (\row_u (prefix t (drop l (branch (enum_val u))))%:R).
Proof.
elim: t l => [|h t IH] l /=.
  by apply/matrixP => i j; rewrite !mxE prefix0s.
rewrite IH mulmx_diag; congr diag_mx; apply/rowP => u.
by rewrite !mxE prefix_has_letter -natrM mulnb.
Qed.

(* the readers meet one block each *)

Definition used (c : column H d din L) : coordinate := inl c.

Lemma used_inj : injective used.
Proof. by move=> c c' []. Qed.

Lemma tree_half (q : 'I_d -> 'I_(d + d)) (w : word H L) :
  wprod tree_V 0 (prew w) *m (\matrix_(u, j) (in_half q (tag w) (lastw w) (enum_val u) j)%:R)
  = sel R (fun j => used (inl (w, q j))).
Proof.
rewrite wprod_tree mul_diag_mx; apply/matrixP => u j; rewrite !mxE drop0 -natrM mulnb.
case: (enum_val u) => [[[w' i]|[v' i]]|i] /=; rewrite ?andbF //.
rewrite -[RHS]/((w' == w) && (i == q j))%:R !andbA; congr (_ && _)%:R; rewrite -andbA.
apply/and3P/eqP => [[pr /eqP e /eqP e']|->]; last by rewrite prefix_refl.
apply: letters_inj; rewrite !lettersE e'; congr rcons.
by move: pr; rewrite prefixE take_oversize ?size_tuple ?e // => /eqP.
Qed.

Lemma tree_leaf (v : L.-tuple 'I_H) : wprod tree_V 0 v *m tree_U = sel R (fun j => used (inr (v, j))).
Proof.
rewrite wprod_tree mul_diag_mx; apply/matrixP => u j; rewrite !mxE drop0 -natrM mulnb.
case: (enum_val u) => [[[w' i]|[v' i]]|i] /=; rewrite ?andbF //.
by rewrite -[RHS]/((v' == v) && (i == j))%:R prefixE size_tuple take_oversize ?size_tuple.
Qed.

(* R_all has one 1 in each column, in different rows *)
Theorem prefix_tree_Rall : Rall L tree tree_U = sel R (fun c => used (enum_val c)).
Proof.
apply/matrixP => u c; rewrite !mxE.
case: (enum_val c) => [[w j]|[v j]]; last by rewrite tree_leaf mxE.
by rewrite -[in RHS](splitK j); case: (split j) => a; rewrite [LHS]/= tree_half mxE.
Qed.

Theorem prefix_tree_permutation :
  (Rall L tree tree_U)^T *m Rall L tree tree_U = 1%:M /\
  (k = 0%N -> Rall L tree tree_U *m (Rall L tree tree_U)^T = 1%:M).
Proof.
rewrite prefix_tree_Rall; split=> [|k0].
  rewrite mul_sel; apply/matrixP => c c'.
  by rewrite !mxE enum_rankK (inj_eq used_inj) (inj_eq enum_val_inj) eq_sym.
apply/matrixP => u u'; rewrite !mxE -(inj_eq enum_val_inj).
case e: (enum_val u) => [c|x]; last by move: (ltn_ord x); rewrite {2}k0.
rewrite -/(used c) (bigD1 (enum_rank c)) //= !mxE e enum_rankK eqxx mul1r big1 ?addr0 => [|c' nc].
  by rewrite eq_sym.
rewrite !mxE e -/(used c) -{1}(enum_rankK c) (inj_eq used_inj) (inj_eq enum_val_inj).
by rewrite eq_sym (negbTE nc) mul0r.
Qed.

Theorem prefix_tree_any_rhs a (W : 'M[R]_(a, #|column H d din L|)) :
  exists E : 'M[R]_(a, #|coordinate|), E *m Rall L tree tree_U = W.
Proof. by exists (W *m (Rall L tree tree_U)^T); rewrite -mulmxA (proj1 prefix_tree_permutation) mulmx1. Qed.

End PrefixTree.

(* thm:sparse_universal_transformer, by matching, with the exact dimension M *)
Theorem prefix_tree_universal (R : ringType) (H d din L m : nat) :
  (matching_dimension H L d din <= m)%N ->
  exists (S : nat -> layer R H d m) (U : 'M[R]_(m, din)),
  [/\ forall l h, [/\ is01 (lQ (S l) h), is01 (lK (S l) h) & is01 (lV (S l) h)], is01 U,
      forall l h, [/\ nnz (lQ (S l) h) <= m, nnz (lK (S l) h) <= m & nnz (lV (S l) h) <= m]%N,
      (nnz U <= m)%N & universal_by_matching L S U].
Proof.
move=> /subnKC <-; rewrite -card_coordinate; set k := (m - _)%N.
exists (tree R H d din L k), (tree_U R H d din L k).
split; [exact: tree_01 | exact: tree_U_01 | exact: tree_nnz | exact: tree_U_nnz |].
by move=> T; have [E EP] := prefix_tree_any_rhs k (Wall L (layers T)); exists E; apply/matchesP.
Qed.

(* the same, functionally: equal outputs for every attention map, context length and input *)
Corollary prefix_tree_emulates (R : ringType) (H d din L m : nat) :
  (matching_dimension H L d din <= m)%N ->
  exists (S : nat -> layer R H d m) (U : 'M[R]_(m, din)),
  [/\ forall l h, [/\ is01 (lQ (S l) h), is01 (lK (S l) h) & is01 (lV (S l) h)], is01 U,
      forall l h, [/\ nnz (lQ (S l) h) <= m, nnz (lK (S l) h) <= m & nnz (lV (S l) h) <= m]%N,
      (nnz U <= m)%N & forall T : transformer R H d din, exists E, emulates L S U (layers T) E].
Proof.
move=> /(prefix_tree_universal R)[S [U [S01 U01 Snnz Unnz univ]]]; exists S, U; split=> //.
exact: universal_by_matching_emulates.
Qed.
