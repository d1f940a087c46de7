(* A tied (looped) {0,1} host at the matching dimension: trie and shift register.                   *)
(*                                                                                                  *)
(* Repairs thm:designed-R-looped and thm:looped_random-R (existence): at every                      *)
(* m >= M = 2 d (H + ... + H^L) + d_in H^L there is one sparse tied host that matches every untied  *)
(* target. No hypothesis on H, L, d, d_in; any ring.                                                *)
(*                                                                                                  *)
(* Coordinates: a trie, one block of width 2d for every nonempty word of length at most L; a shift  *)
(* register, one block of width d_in for every word of length L; and k unused coordinates. Columns  *)
(* of the matrices, as maps on blocks:                                                              *)
(*     trie             R_V^h sends block w to block (h, w), and blocks of length L to 0            *)
(*     shift register   R_V^h sends block (w_1, ..., w_L) to (h, w_1, ..., w_{L-1})                 *)
(*     readers          R_Q^h and R_K^h are the two halves of the trie block (h);                   *)
(*                      U is the register block (0, ..., 0)                                         *)
(* Hence R_w R_Q^h and R_w R_K^h select the two halves of the trie block (w, h), and R_w U selects  *)
(* the register block w: R_all selects different coordinates, all of them when k = 0.               *)
(*                                                                                                  *)
(*   trie_host, trie_U        the host, on the coordinates coord H L d din k                        *)
(*   trie_left_inverse        selC R_all = 1, where selC is the transpose of R_all                  *)
(*   trie_right_inverse       R_all selC = 1 when k = 0: at m = M, R_all is a permutation matrix    *)
(*   tied_trie_all_rhs        every right-hand side W of E R_all = W is attained                    *)
(*   tied_trie_universal      the trie host is universal by matching                                *)
(*   tied_universal           for every m >= M there is a tied host with entries 0 and 1, at most d *)
(*                            nonzeros in each R_Q^h and R_K^h, m in each R_V^h and d_in in U (and  *)
(*                            never more than m) that is universal by matching                      *)
(*   tied_universal_emulates  the same with equal outputs for every attention map                   *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words MatchingSystem Selection Emulation.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

Section Construction.
Variables (R : ringType) (H L d din k : nat).

(* one coordinate for every column of R_all, and k unused ones *)
Definition coord := [finType of column H d din L + 'I_k].
Notation m := #|coord|.

Lemma card_coord : m = (matching_dimension H L d din + k)%N.
Proof. by rewrite card_sum card_column card_ord. Qed.

Definition zero_word (w : seq 'I_H) := all (fun h : 'I_H => h == 0%N :> nat) w.

Definition relV (h : 'I_H) (u v : coord) : bool :=
  match u, v with
  | inl (inl (x, i)), inl (inl (y, j)) => (letters x == h :: letters y) && (i == j)
  | inl (inr (x, i)), inl (inr (y, j)) => (tval x == take L (h :: y)) && (i == j)
  | _, _ => false
  end.

Definition relQK (q : 'I_d -> 'I_(d + d)) (h : 'I_H) (u : coord) (j : 'I_d) : bool :=
  if u is inl (inl (x, i)) then (letters x == [:: h]) && (i == q j) else false.

Definition relU (u : coord) (j : 'I_din) : bool :=
  if u is inl (inr (x, i)) then zero_word x && (i == j) else false.

Definition trieV h : 'M[R]_m := rel_mx R (relV h).
Definition trieQK q h : 'M[R]_(m, d) := \matrix_(u, j) (relQK q h (enum_val u) j)%:R.
Definition trieQ := trieQK (@lshift d d).
Definition trieK := trieQK (@rshift d d).
Definition trie_U : 'M[R]_(m, din) := \matrix_(u, j) (relU (enum_val u) j)%:R.
Definition trie_host : layer R H d m := Layer trieQ trieK trieV.

Notation tieV := (values (fun=> trie_host)).

(* What the words do *)

Lemma trie_step (h : 'I_H) (w w' : word H L) i (u : coord) : letters w' = h :: letters w ->
  relV h u (inl (inl (w, i))) = (u == inl (inl (w', i))).
Proof.
case: u => [[[x j]|[x j]]|x] e //=.
by rewrite -e (inj_eq (@letters_inj _ _)).
Qed.

(* R_v R_Q^h and R_v R_K^h select the two halves of the block (v, h) *)
Lemma trie_reads q l0 v h (w : word H L) : letters w = rcons v h ->
  wprod tieV l0 v *m trieQK q h = sel R (fun j => inl (inl (w, q j))).
Proof.
elim: v l0 w => [|a v IH] l0 w e /=.
  rewrite mul1mx; apply/matrixP => u j; rewrite !mxE.
  case: (enum_val u) => [[[x i]|[x i]]|x] //=.
  by rewrite -[[:: h]]e (inj_eq (@letters_inj _ _)).
have [w' e'] : exists w' : word H L, letters w' = rcons v h.
  by apply: letters_ex; have := letters_size w; rewrite e /= size_rcons /= => /ltnW.
rewrite -mulmxA (IH _ w' e'); apply: rel_mx_sel => u j.
by apply: trie_step; rewrite e e'.
Qed.

Lemma take_cons_take A n (x : A) s : take n (x :: take n s) = take n (x :: s).
Proof. by case: n => //= n; rewrite take_take. Qed.

Lemma zero_word_uniq (x z : L.-tuple 'I_H) : zero_word x -> zero_word z -> x = z.
Proof.
move=> x0 z0; apply: eq_from_tnth => t; apply: val_inj => /=.
by rewrite (eqP (all_tnthP x0 t)) (eqP (all_tnthP z0 t)).
Qed.

Lemma register_reads_part l0 v (z w : L.-tuple 'I_H) : zero_word z -> tval w = take L (v ++ z) ->
  wprod tieV l0 v *m trie_U = sel R (fun j => inl (inr (w, j))).
Proof.
move=> z0; elim: v l0 w => [|a v IH] l0 w e /=.
  rewrite mul1mx; apply/matrixP => u j; rewrite !mxE.
  case: (enum_val u) => [[[x i]|[x i]]|x] //=.
  have -> : w = z by apply: val_inj; rewrite /= e /= take_oversize ?size_tuple.
  suff -> : zero_word x = (x == z) by [].
  by apply/idP/eqP => [x0|-> //]; apply: zero_word_uniq.
have sz : size (take L (v ++ z)) == L.
  by rewrite size_take size_cat size_tuple; case: ltnP => // le; rewrite eqn_leq le leq_addl.
rewrite -mulmxA (IH _ (Tuple sz) erefl); apply: rel_mx_sel => u j.
case: u => [[[x i]|[x i]]|x] //=.
suff <- : tval w = take L (a :: take L (v ++ z)) by [].
by rewrite e cat_cons take_cons_take.
Qed.

(* R_w U selects the register block w *)
Lemma register_reads (w : L.-tuple 'I_H) :
  wprod tieV 0 w *m trie_U = sel R (fun j => inl (inr (w, j))).
Proof.
have zP (h : 'I_H) : (0 < H)%N by apply: leq_ltn_trans (ltn_ord h).
apply: (@register_reads_part _ _ (map_tuple (fun h => Ordinal (zP h)) w)).
  by rewrite /zero_word all_map; apply/allP.
by rewrite take_size_cat ?size_tuple.
Qed.

(* R_all is a selection of different coordinates *)
Definition coord_of (c : 'I_#|column H d din L|) : coord := inl (enum_val c).

Lemma coord_of_inj : injective coord_of.
Proof. by move=> c c' [/enum_val_inj]. Qed.

Lemma trie_Rall : Rall L (fun=> trie_host) trie_U = sel R coord_of.
Proof.
apply/matrixP => u c; rewrite [LHS]mxE [RHS]mxE /coord_of.
case: (enum_val c) => [[w j]|[w j]]; last by rewrite register_reads mxE.
rewrite -[in RHS](splitK j); case: (split j) => j' /=.
- by rewrite (@trie_reads (@lshift d d) _ _ (lastw w) w) ?lettersE // mxE.
- by rewrite (@trie_reads (@rshift d d) _ _ (lastw w) w) ?lettersE // mxE.
Qed.

Definition selC : 'M[R]_(#|column H d din L|, m) := (sel R coord_of)^T.

Theorem trie_left_inverse : selC *m Rall L (fun=> trie_host) trie_U = 1%:M.
Proof.
rewrite trie_Rall mul_sel; apply/matrixP => c c'.
by rewrite !mxE enum_rankK (inj_eq coord_of_inj) eq_sym.
Qed.

(* without unused coordinates R_all is a permutation matrix: selC, its transpose, is its inverse *)
Theorem trie_right_inverse : k = 0%N -> Rall L (fun=> trie_host) trie_U *m selC = 1%:M.
Proof.
move=> k0; rewrite trie_Rall; apply/matrixP => u v; rewrite !mxE.
have [c uc] : exists c, enum_val u = coord_of c.
  case: (enum_val u) => [x|j]; first by exists (enum_rank x); rewrite /coord_of enum_rankK.
  by have := leq_trans (ltn_ord j) (eq_leq k0).
rewrite (bigD1 c) //= big1 => [|c' /negbTE cc']; rewrite !mxE uc.
  by rewrite eqxx mul1r addr0 -uc (inj_eq enum_val_inj) eq_sym.
by rewrite (inj_eq coord_of_inj) eq_sym cc' mul0r.
Qed.

(* Any right-hand sides are attained by a suitable E *)
Theorem tied_trie_all_rhs a (W : 'M[R]_(a, #|column H d din L|)) :
  exists E : 'M[R]_(a, m), E *m Rall L (fun=> trie_host) trie_U = W.
Proof. by exists (W *m selC); rewrite -mulmxA trie_left_inverse mulmx1. Qed.

Corollary tied_trie_all_blocks a (BQ BK : forall l, l.-tuple 'I_H -> 'I_H -> 'M[R]_(a, d))
    (BV : L.-tuple 'I_H -> 'M[R]_(a, din)) :
  exists E : 'M[R]_(a, m),
  [/\ forall l (w : l.-tuple 'I_H) h, (l < L)%N -> E *m wprod tieV 0 w *m trieQ h = BQ l w h,
      forall l (w : l.-tuple 'I_H) h, (l < L)%N -> E *m wprod tieV 0 w *m trieK h = BK l w h &
      forall w : L.-tuple 'I_H, E *m wprod tieV 0 w *m trie_U = BV w].
Proof.
have [E] := tied_trie_all_rhs (pack BQ BK BV); rewrite mul_pack => /pack_inj[eQ eK eV].
exists E; split=> [l w h lL|l w h lL|w]; rewrite -mulmxA; [exact: eQ|exact: eK|exact: eV].
Qed.

Corollary tied_trie_universal : universal_by_matching L (fun=> trie_host) trie_U.
Proof.
move=> T; have [E /matchesP EP] := tied_trie_all_rhs (Wall L (layers T)).
by exists E.
Qed.

(* Sparsity *)

Lemma nnz_trieQK q h : injective q -> (nnz (trieQK q h) <= minn d m)%N.
Proof.
move=> q_inj; rewrite leq_min; apply/andP; split.
  apply: nnz_col => i i' j; rewrite !mxE => /natr_neq0 r1 /natr_neq0 r2.
  apply: enum_val_inj; move: r1 r2.
  case: (enum_val i) (enum_val i') => [[[x b]|]|] // [[[y c]|]|] //= /andP[/eqP e /eqP->].
  by rewrite -e => /andP[/eqP/letters_inj-> /eqP->].
apply: nnz_row => i j j'; rewrite !mxE => /natr_neq0 + /natr_neq0.
by case: (enum_val i) => [[[x b]|]|] //= /andP[_ /eqP->] /andP[_ /eqP/q_inj].
Qed.

Lemma nnz_trieV h : (nnz (trieV h) <= m)%N.
Proof.
apply: nnz_col => i i' j; rewrite !mxE => /natr_neq0 r1 /natr_neq0 r2.
apply: enum_val_inj; move: r1 r2.
case: (enum_val i) (enum_val i') (enum_val j)
  => [[[x b]|[x b]]|?] [[[y c]|[y c]]|?] [[[z e]|[z e]]|?] //=;
  move=> /andP[/eqP e1 /eqP->] /andP[/eqP e2 /eqP->].
- by rewrite (letters_inj (etrans e1 (esym e2))).
- by have -> : x = y by apply: val_inj; rewrite /= e1 e2.
Qed.

Lemma nnz_trie_U : (nnz trie_U <= minn din m)%N.
Proof.
rewrite leq_min; apply/andP; split.
  apply: nnz_col => i i' j; rewrite !mxE => /natr_neq0 r1 /natr_neq0 r2.
  apply: enum_val_inj; move: r1 r2.
  case: (enum_val i) (enum_val i') => [[|[x b]]|] // [[|[y c]]|] //= /andP[x0 /eqP->] /andP[y0 /eqP->].
  by rewrite (zero_word_uniq x0 y0).
apply: nnz_row => i j j'; rewrite !mxE => /natr_neq0 + /natr_neq0.
by case: (enum_val i) => [[|[x b]]|] //= /andP[_ /eqP->] /andP[_ /eqP].
Qed.

End Construction.

Section Universal.
Variables (R : ringType) (H L d din m : nat).
Hypothesis m_big : (matching_dimension H L d din <= m)%N.

(* At every m >= M there is a tied host with entries 0 and 1 that is universal by matching, with at most
   min(d, m) nonzeros in each R_Q^h and R_K^h, m in each R_V^h and min(d_in, m) in U. *)
Theorem tied_universal :
  exists (RQ RK : 'I_H -> 'M[R]_(m, d)) (RV : 'I_H -> 'M[R]_m) (U : 'M[R]_(m, din)),
  [/\ forall h, [/\ is01 (RQ h), is01 (RK h) & is01 (RV h)], is01 U,
      forall h, [/\ nnz (RQ h) <= minn d m, nnz (RK h) <= minn d m & nnz (RV h) <= m]%N,
      (nnz U <= minn din m)%N &
      universal_by_matching L (fun=> Layer RQ RK RV) U].
Proof.
move: m_big => /subnKC <-; set k := (m - _)%N; rewrite -card_coord.
exists (@trieQ R H L d din k), (@trieK R H L d din k), (@trieV R H L d din k), (@trie_U R H L d din k).
split; try by [move=> h; split; apply: is01_bool | apply: is01_bool].
- by move=> h; split; [apply/nnz_trieQK/lshift_inj | apply/nnz_trieQK/rshift_inj | apply: nnz_trieV].
- exact: nnz_trie_U.
- exact: tied_trie_universal.
Qed.

(* ... so that one embedding reproduces the target's outputs under every attention map *)
Corollary tied_universal_emulates :
  exists (RQ RK : 'I_H -> 'M[R]_(m, d)) (RV : 'I_H -> 'M[R]_m) (U : 'M[R]_(m, din)),
  [/\ forall h, [/\ is01 (RQ h), is01 (RK h) & is01 (RV h)], is01 U,
      forall h, [/\ nnz (RQ h) <= m, nnz (RK h) <= m & nnz (RV h) <= m]%N, (nnz U <= m)%N &
      forall T : transformer R H d din, exists E : 'M[R]_(din, m),
        emulates L (fun=> Layer RQ RK RV) U (layers T) E].
Proof.
have [RQ [RK [RV [U [z01 u01 nz nu univ]]]]] := tied_universal.
exists RQ, RK, RV, U; split=> //; last exact: universal_by_matching_emulates.
  by move=> h; have [nQ nK ?] := nz h; split=> //; [move: nQ | move: nK]; rewrite leq_min => /andP[].
by move: nu; rewrite leq_min => /andP[].
Qed.

End Universal.
