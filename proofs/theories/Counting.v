(* Looped targets of width 1: counting letters, m = C(L+H-1, H-1).                *)
(*                                                                                *)
(* A looped (tied) target of width 1 is a vector of H scalars, and its word       *)
(* products are the monomials of degree L in them. The order of the letters is    *)
(* lost, so a host only has to count. Below H is written H'.+1, so H - 1 = H'.    *)
(*                                                                                *)
(*   count_state         how often each of the letters 2..H occurred, at most L   *)
(*                       in all; there are C(L+H-1, H-1) of them                  *)
(*   raise h             the {0,1} matrix that counts the letter h (for the first *)
(*                       letter: the identity)                                    *)
(*                                                                                *)
(* counting_universal    shared attention: one tied {0,1} host with U fixed serves*)
(*                       every tied scalar target as soon as m >= C(L+H-1, H-1)   *)
(* looped_bound_false_at_two_heads   the looped half of thm:lower_bound_utf fails:*)
(*                       at H = 2 and every L >= 6 a tied host with m = L+1, and  *)
(*                       m^2 < 2^L, reproduces every tied target for every        *)
(*                       attention                                                *)
(* looped_bound_false    the same at every H >= 2 (for some depth)                *)
(* counting_lower_bound  U fixed, field infinite: m >= C(L+H-1, H-1) is needed, by*)
(*                       tied and untied hosts alike                              *)
(* counting_exact        so with U fixed C(L+H-1, H-1) is the exact dimension     *)
(* counting_free_bound   E and U both free: C(L+H-1, H-1) <= m^2                  *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Selection Spanning SharedBounds.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* Counts *)
Section Counts.
Variables (H' L : nat).
Notation H := H'.+1.

Definition count_state := [finType of {t : H'.-tuple 'I_L.+1 | \sum_(i <- t) i <= L}%N].

Lemma card_count_state : #|count_state| = 'C(L + H', H').
Proof.
rewrite addnC -card_partial_ord_partitions card_sig.
by apply: eq_card => t; rewrite !inE.
Qed.

Definition counted (u : count_state) (i : 'I_H') : nat := tnth (val u) i.

Lemma counted_inj (u v : count_state) : counted u =1 counted v -> u = v.
Proof.
by move=> e; apply: val_inj; apply: eq_from_tnth => i; apply: val_inj; apply: e.
Qed.

Lemma sum_counted u : (\sum_i counted u i <= L)%N.
Proof. by have := valP u; rewrite big_tuple. Qed.

(* the letter 0 is not counted, the letter i + 1 is counted at i *)
Lemma sum_count_mem (w : seq 'I_H) :
  (count_mem ord0 w + \sum_(i < H') count_mem (lift ord0 i) w)%N = size w.
Proof.
rewrite -(big_ord_recl _ (fun h => count_mem h w)); elim: w => [|h w IH] /=.
  by rewrite big1.
rewrite big_split /= IH (bigD1 h) //= eqxx big1 // => a /negbTE.
by rewrite eq_sym => ->.
Qed.

Lemma state_ex (w : seq 'I_H) : (size w <= L)%N ->
  exists u, forall i, counted u i = count_mem (lift ord0 i) w.
Proof.
move=> wL; pose t := [tuple inord (count_mem (lift ord0 i) w) : 'I_L.+1 | i < H'].
have tE i : tnth t i = count_mem (lift ord0 i) w :> nat.
  by rewrite tnth_mktuple inordK // ltnS (leq_trans (count_size _ _)).
have tL : (\sum_(i <- t) i <= L)%N.
  rewrite big_tuple (eq_bigr _ (fun i _ => tE i)) (leq_trans _ wL) //.
  by rewrite -[X in (_ <= X)%N](sum_count_mem w) leq_addl.
by exists (Sub t tL) => i; rewrite /counted SubK tE.
Qed.

End Counts.

Section Host.
Variables (R : comRingType) (H' L r : nat).
Notation H := H'.+1.

(* r unused coordinates *)
Definition register := [finType of count_state H' L + 'I_r].

Definition raise_rel (h : 'I_H) : rel register := fun u v =>
  match u, v with
  | inl u, inl v => [forall i, counted u i == (h == lift ord0 i) + counted v i]%N
  | _, _ => false end.

Definition raise (h : 'I_H) : 'M[R]_#|register| := rel_mx R (raise_rel h).

Definition is_root (u : register) : bool := if u is inl u then [forall i, counted u i == 0%N] else false.
Definition root : 'cV[R]_#|register| := \matrix_(u, _) (is_root (enum_val u))%:R.

(* R_w U is the unit vector of the counts of w *)
Lemma raise_word l0 w (u : count_state H' L) :
  (size w <= L)%N -> (forall i, counted u i = count_mem (lift ord0 i) w) ->
  wprod (fun=> raise) l0 w *m root = sel R (fun _ : 'I_1 => inl u : register).
Proof.
elim: w l0 u => [|h w IH] l0 u wL uw.
  rewrite mul1mx; apply/matrixP => v j; rewrite !mxE; case: (enum_val v) => [v'|//] /=.
  congr ((nat_of_bool _)%:R); apply/forallP/eqP => [v0|[->] i]; last by rewrite uw.
  by congr inl; apply: counted_inj => i; rewrite (eqP (v0 i)) uw.
have [v vw] := state_ex (ltnW wL); rewrite wprod_cons -mulmxA (IH _ _ (ltnW wL) vw).
apply: rel_mx_sel => -[x|//] _ /=; apply/forallP/eqP => [xP|[->] i]; last by rewrite uw vw.
by congr inl; apply: counted_inj => i; rewrite (eqP (xP i)) uw vw.
Qed.

(* the monomials of degree L *)
Definition monomial (c : 'I_H -> R) (u : count_state H' L) : R :=
  c ord0 ^+ (L - \sum_i counted u i) * \prod_i c (lift ord0 i) ^+ counted u i.

Lemma weight_count (c : 'I_H -> R) l0 w : weight (fun=> c) l0 w = \prod_h c h ^+ count_mem h w.
Proof.
elim: w l0 => [|h w IH] l0 /=; first by rewrite big1.
rewrite IH (bigD1 h) //= [RHS](bigD1 h) //= eqxx exprS -mulrA; congr (_ * (_ * _)).
by apply: eq_bigr => a /negbTE; rewrite eq_sym => ->.
Qed.

Lemma weight_monomial (c : 'I_H -> R) l0 w u : size w = L ->
  (forall i, counted u i = count_mem (lift ord0 i) w) -> weight (fun=> c) l0 w = monomial c u.
Proof.
move=> wL uw; rewrite weight_count big_ord_recl /monomial; congr (_ ^+ _ * _).
  by rewrite (eq_bigr _ (fun i _ => uw i)) -[X in (X - _)%N]wL -(sum_count_mem w) addnK.
by apply: eq_bigr => i _; rewrite uw.
Qed.

Definition embed_counts (c : 'I_H -> R) : 'rV[R]_#|register| :=
  \row_u if enum_val u is inl u then monomial c u else 0.

Lemma counting_matches (c : 'I_H -> R) :
  shared_matches L (fun=> raise) (fun _ h => (c h)%:M) (embed_counts c) root.
Proof.
move=> w; have [u uw] : exists u : count_state H' L, _ := state_ex (w := w) (eq_leq (size_tuple w)).
rewrite -mulmxA (raise_word _ _ uw) ?size_tuple // mul_sel wprod_scalar.
rewrite (weight_monomial _ _ (size_tuple w) uw).
by apply/matrixP => i j; rewrite !ord1 !mxE enum_rankK eqxx.
Qed.

End Host.

Section Universal.
Variable R : comRingType.

(* Shared attention, width 1: one tied {0,1} host and a fixed U serve every tied target *)
Theorem counting_universal (H' L m : nat) : ('C(L + H', H') <= m)%N ->
  exists (V : 'I_H'.+1 -> 'M[R]_m) (U : 'cV[R]_m), [/\ forall h, is01 (V h), is01 U &
    forall M : 'I_H'.+1 -> 'M[R]_1, exists E, shared_matches L (fun=> V) (fun=> M) E U].
Proof.
move=> /subnKC <-; rewrite -card_count_state -[X in (_ + X)%N]card_ord -card_sum.
exists (@raise R H' L _), (@root R H' L _); split=> [h||M]; [exact: is01_bool|exact: is01_bool|].
exists (@embed_counts R H' L _ (fun h => M h 0 0)) => w; rewrite counting_matches.
by apply: eq_wprod => l h _; rewrite [RHS]mx11_scalar.
Qed.

(* transposition turns E into U: words are read backwards, which looped scalars cannot tell *)
Lemma wprod_tr H D (V : 'I_H -> 'M[R]_D) l0 w :
  wprod (fun _ h => (V h)^T) l0 w = (wprod (fun=> V) 0 (rev w))^T.
Proof.
elim: w l0 => [|h w IH] l0 /=; first by rewrite trmx1.
by rewrite IH rev_cons wprod_rcons trmx_mul.
Qed.

Lemma weight_rev H (c : 'I_H -> R) w : weight (fun=> c) 0 (rev w) = weight (fun=> c) 0 w.
Proof.
have bigE l0 v : weight (fun=> c) l0 v = \prod_(h <- v) c h.
  by elim: v l0 => [|h v IH] l0 /=; rewrite ?big_nil // big_cons IH.
by rewrite !bigE; apply: perm_big; rewrite perm_rev.
Qed.

(* The same host transposed: E fixed, U depending on the target *)
Theorem counting_universal_unembedding (H' L m : nat) : ('C(L + H', H') <= m)%N ->
  exists (V : 'I_H'.+1 -> 'M[R]_m) (E : 'rV[R]_m), [/\ forall h, is01 (V h), is01 E &
    forall M : 'I_H'.+1 -> 'M[R]_1, exists U, shared_matches L (fun=> V) (fun=> M) E U].
Proof.
move=> /counting_universal[V [U [V01 U01 univ]]].
exists (fun h => (V h)^T), U^T; split=> [h i j|i j|M]; [rewrite mxE; exact: V01|rewrite mxE; exact: U01|].
have [E EP] := univ M; exists E^T => w; have := EP [tuple of rev w].
have ME v : wprod (fun=> M) 0 v = (weight (fun _ h => M h 0 0) 0 v)%:M.
  by rewrite -wprod_scalar; apply: eq_wprod => l h _; rewrite [LHS]mx11_scalar.
rewrite !ME weight_rev wprod_tr => /(congr1 trmx); rewrite tr_scalar_mx => <-.
by rewrite !trmx_mul mulmxA.
Qed.

(* Two heads: m = L + 1 for every L, with equal outputs for all attention matrices *)
Theorem two_heads_counting (d L : nat) :
  exists (V : 'I_2 -> 'M[R]_L.+1) (U : 'cV[R]_L.+1), forall T : transformer R 2 d 1, looped T ->
    exists E, shared_emulates L (fun=> V) (values (layers T)) E U (fun _ _ => True).
Proof.
have [|V [U [_ _ univ]]] := @counting_universal 1 L L.+1; first by rewrite bin1 addn1.
exists V, U => T loop; have [E EP] := univ (values (layers T) 0); exists E.
apply: shared_matching_emulates => w; rewrite EP.
by apply: eq_wprod => l h _; rewrite [RHS]looped_values.
Qed.

Lemma sqr_lt_exp2 L : (6 <= L)%N -> (L.+1 ^ 2 < 2 ^ L)%N.
Proof.
move=> /subnK <-; elim: (L - 6)%N => // k IH; rewrite addSn [(2 ^ _)%N]expnS.
apply: leq_ltn_trans (_ : _ <= 2 * (k + 6).+1 ^ 2)%N _; last by rewrite ltn_pmul2l.
have : (3 <= (k + 6).+1)%N by rewrite !addnS.
move: (k + 6).+1 => a a3; rewrite -addn1 sqrnD exp1n muln1 -addnA [(2 * a ^ 2)%N]mul2n -addnn.
by rewrite leq_add2l -mulnn (@leq_trans (3 * a)) ?leq_mul // mulSn leq_add2r (leq_trans _ a3).
Qed.

(* thm:lower_bound_utf for looped hosts and looped targets is false: at H = 2 the claimed
   m >= 2^(L/2) fails from L = 6 on. *)
Theorem looped_bound_false_at_two_heads (d L : nat) : (6 <= L)%N ->
  exists m, (m ^ 2 < 2 ^ L)%N /\ exists (V : 'I_2 -> 'M[R]_m) (U : 'cV[R]_m),
    forall T : transformer R 2 d 1, looped T ->
    exists E, shared_emulates L (fun=> V) (values (layers T)) E U (fun _ _ => True).
Proof. by move=> /sqr_lt_exp2 lt; exists L.+1; split=> //; apply: two_heads_counting. Qed.

(* The same for every number of heads: C(L+H-1, H-1) grows like a power of L only. *)
Lemma binomial_le_exp L n : ('C(L + n, n) <= L.+1 ^ n)%N.
Proof. by rewrite -card_count_state card_sig (leq_trans (max_card _)) // card_tuple card_ord. Qed.

Lemma power_lt_exp n : (0 < n)%N -> exists L, ((L.+1 ^ n) ^ 2 < n.+1 ^ L)%N.
Proof.
move=> n_gt0; exists (2 ^ (4 * n)).-1; rewrite prednK ?expn_gt0 // -!expnM.
have le_pow : (4 * n <= 2 ^ (2 * n))%N.
  by case: (n) n_gt0 => // n' _; rewrite [(2 ^ _)%N]expnM expnS leq_pmul2l // ltn_expl.
have le_sqr : (4 * n * n * 4 <= 2 ^ (4 * n))%N.
  rewrite -[(_ * n * 4)%N]mulnA [(n * 4)%N]mulnC (leq_trans (leq_mul le_pow le_pow)) // mulnn -expnM.
  by rewrite mulnAC.
have lt_L : (4 * n * n * 2 < (2 ^ (4 * n)).-1)%N.
  rewrite -ltnS prednK ?expn_gt0 // (leq_trans _ le_sqr) //; move: (4 * n * n)%N (muln_gt0 (4 * n) n).
  rewrite muln_gt0 n_gt0 /= => a a_gt0.
  have -> : (a * 4 = a * 2 + a * 2)%N by rewrite -mulnDr.
  by rewrite -addn2 leq_add2l leq_pmull.
apply: (@leq_trans (2 ^ (2 ^ (4 * n)).-1)); first by rewrite ltn_exp2l // mulnA.
by rewrite leq_exp2r // (leq_ltn_trans _ lt_L).
Qed.

Theorem looped_bound_false (d H : nat) : (1 < H)%N ->
  exists L m, (m ^ 2 < H ^ L)%N /\ exists (V : 'I_H -> 'M[R]_m) (U : 'cV[R]_m),
    forall T : transformer R H d 1, looped T ->
    exists E, shared_emulates L (fun=> V) (values (layers T)) E U (fun _ _ => True).
Proof.
case: H => // H' H_gt1; have [L lt] := power_lt_exp H_gt1; exists L, 'C(L + H', H'); split.
  by apply: leq_ltn_trans lt; rewrite leq_exp2r // binomial_le_exp.
have [V [U [_ _ univ]]] := counting_universal (leqnn 'C(L + H', H')); exists V, U => T loop.
have [E EP] := univ (values (layers T) 0); exists E; apply: shared_matching_emulates => w; rewrite EP.
by apply: eq_wprod => l h _; rewrite [RHS]looped_values.
Qed.

End Universal.

(* How far counting can go: over an infinite field the monomials are linearly independent. *)

Lemma radix_inj b n (a a' : 'I_n -> nat) : (forall i, a i < b)%N -> (forall i, a' i < b)%N ->
  (\sum_i a i * b ^ i = \sum_i a' i * b ^ i)%N -> a =1 a'.
Proof.
elim: n a a' => [|n IH] a a' ab a'b; first by move=> _ [].
have split_low (e : 'I_n.+1 -> nat) :
    (\sum_i e i * b ^ i = (\sum_(i < n) e (lift ord0 i) * b ^ i) * b + e ord0)%N.
  rewrite big_ord_recl muln1 addnC big_distrl; congr (_ + _)%N.
  by apply: eq_bigr => i _; rewrite /= -mulnA -expnSr.
have b_gt0 := leq_ltn_trans (leq0n _) (ab ord0).
rewrite !split_low => e; have := congr1 (modn^~ b) e; have := congr1 (divn^~ b) e.
rewrite !divnMDl // !modnMDl !modn_small // !divn_small // !addn0 => high low i.
case: (unliftP ord0 i) => [j|] -> //.
by apply: (IH (fun j => a (lift ord0 j)) (fun j => a' (lift ord0 j))) => [j'|j'|].
Qed.

Section LowerBound.
Variables (F : fieldType) (H' d m L : nat).
Notation H := H'.+1.
Hypothesis infinite : forall n, exists2 s : seq F, uniq s & size s = n.
Hypothesis d_gt0 : (0 < d)%N.

(* Kronecker substitution: letter i + 1 becomes the power (L+1)^i of one variable *)
Definition code (u : count_state H' L) : nat := (\sum_i counted u i * L.+1 ^ i)%N.

Lemma code_inj : injective code.
Proof. by move=> u v /radix_inj e; apply: counted_inj; apply: e => i; rewrite ltn_ord. Qed.

Lemma monomials_free (z : count_state H' L -> F) :
  (forall c : 'I_H -> F, \sum_u z u * monomial c u = 0) -> forall u, z u = 0.
Proof.
move=> z0; pose p : {poly F} := \sum_u z u *: 'X^(code u).
have p0 : p = 0.
  have [s s_uniq sp] := infinite (size p); apply: roots_geq_poly_eq0 (_ : all _ s) _ _ => //.
    apply/allP => x _; rewrite rootE; apply/eqP.
    rewrite -[RHS](z0 (fun h => if unlift ord0 h is Some i then x ^+ (L.+1 ^ i) else 1)).
    rewrite horner_sum; apply: eq_bigr => u _; rewrite hornerZ hornerXn /monomial unlift_none expr1n mul1r.
    rewrite expr_sum; congr (_ * _); apply: eq_bigr => i _.
    by rewrite liftK -exprM mulnC.
  by rewrite sp.
move=> u; have := congr1 (fun q : {poly F} => q`_(code u)) p0.
rewrite coef0 coef_sum (bigD1 u) //= coefZ coefXn eqxx mulr1 big1 ?addr0 // => v /negbTE ne.
by rewrite coefZ coefXn eq_sym (inj_eq code_inj) ne mulr0.
Qed.

(* every count is the count of a word *)
Lemma word_of_counts (u : count_state H' L) :
  exists w : L.-tuple 'I_H, forall i, counted u i = count_mem (lift ord0 i) w.
Proof.
pose n (h : 'I_H) := if unlift ord0 h is Some i then counted u i else (L - \sum_i counted u i)%N.
pose w := flatten [seq nseq (n h) h | h <- enum 'I_H].
have count_w h : count_mem h w = n h.
  rewrite count_flatten sumnE 2!big_map big_enum /= (bigD1 h) //= count_nseq /= eqxx mul1n.
  by rewrite big1 ?addn0 // => a /negbTE ne; rewrite count_nseq /= ne.
have size_w : size w == L.
  rewrite -(sum_count_mem w) count_w {1}/n unlift_none.
  by rewrite [X in (_ + X)%N](eq_bigr (counted u)) ?subnK ?sum_counted // => i _; rewrite count_w /n liftK.
by exists (Tuple size_w) => i; rewrite count_w /n liftK.
Qed.

(* p linear functionals that separate the words' counts for every target *)
Lemma separating_bound p (B : L.-tuple 'I_H -> 'rV[F]_p) :
  (forall c, exists y : 'cV[F]_p, forall w, (B w *m y) 0 0 = weight (fun=> c) 0 w) ->
  ('C(L + H', H') <= p)%N.
Proof.
move=> sep; have /fin_all_exists[word wordP] := word_of_counts.
pose A := \matrix_(u < #|{: count_state H' L}|) B (word (enum_val u)).
rewrite -card_count_state; have <- : \rank A = #|{: count_state H' L}|; last exact: rank_leq_col.
apply/eqP; apply: inj_row_free => v vA; apply/rowP => i; rewrite mxE -[i]enum_valK.
apply: (@monomials_free (fun u => v 0 (enum_rank u))) => c; have [y yP] := sep c.
have : (v *m A *m y) 0 0 = 0 by rewrite vA mul0mx mxE.
rewrite -mulmxA mxE (reindex enum_rank) /=; last exact: onW_bij (enum_rank_bij _).
move=> e; rewrite -[RHS]e; apply: eq_bigr => u _; congr (_ * _).
have -> : (A *m y) (enum_rank u) 0 = (B (word u) *m y) 0 0.
  by rewrite -[u in RHS]enum_rankK !mxE; apply: eq_bigr => k _; rewrite !mxE.
by rewrite yP (weight_monomial _ _ (size_tuple _) (wordP u)).
Qed.

Variable V : nat -> 'I_H -> 'M[F]_m.

(* the weights of a looped scalar target *)
Lemma looped_target_matches (c : 'I_H -> F) E U (i : 'I_d) (w : L.-tuple 'I_H) :
  shared_matches L V (values (layers (diag_target (fun=> c) i (0 : 'I_1)))) E U ->
  (E *m wprod V 0 w *m U) 0 0 = weight (fun=> c) 0 w.
Proof.
move=> match_w; rewrite match_w; have := wprod_diag_target (fun=> c) i (0 : 'I_1) 0 w.
by move/(congr1 (fun A : 'M_1 => A 0 0)); rewrite -rowE !mxE eqxx mulr1.
Qed.

(* U fixed: no host, tied or not, serves all looped targets of width 1 below C(L+H-1, H-1). *)
Theorem counting_lower_bound (U : 'M[F]_(m, 1)) :
  (forall T : transformer F H d 1, looped T ->
    exists E, shared_matches L V (values (layers T)) E U) -> ('C(L + H', H') <= m)%N.
Proof.
move=> univ; apply: (@separating_bound _ (fun w => (wprod V 0 w *m U)^T)) => c.
have [E EP] := univ _ (looped_diag_target c (Ordinal d_gt0) (0 : 'I_1)).
exists E^T => w; rewrite -trmx_mul mxE mulmxA; exact: looped_target_matches EP.
Qed.

(* E fixed instead: the same bound *)
Theorem counting_lower_bound_unembedding (E : 'M[F]_(1, m)) :
  (forall T : transformer F H d 1, looped T ->
    exists U, shared_matches L V (values (layers T)) E U) -> ('C(L + H', H') <= m)%N.
Proof.
move=> univ; apply: (@separating_bound _ (fun w => E *m wprod V 0 w)) => c.
have [U EU] := univ _ (looped_diag_target c (Ordinal d_gt0) (0 : 'I_1)).
by exists U => w; apply: looped_target_matches EU.
Qed.

(* E and U both free: still C(L+H-1, H-1) <= m^2. *)
Theorem counting_free_bound :
  (forall T : transformer F H d 1, looped T ->
    exists E U, shared_matches L V (values (layers T)) E U) -> ('C(L + H', H') <= m ^ 2)%N.
Proof.
move=> univ; rewrite -mulnn; apply: (@separating_bound _ (fun w => mxvec (wprod V 0 w))) => c.
have [E [U EU]] := univ _ (looped_diag_target c (Ordinal d_gt0) (0 : 'I_1)).
exists (mxvec (E^T *m U^T))^T => w; rewrite bilinear_vec; exact: looped_target_matches EU.
Qed.

End LowerBound.

(* One of E, U fixed, looped targets of width 1: C(L+H-1, H-1) is the exact dimension. *)
Theorem counting_exact (F : fieldType) (H' d m L : nat) :
  (forall n, exists2 s : seq F, uniq s & size s = n) -> (0 < d)%N ->
  (exists (V : 'I_H'.+1 -> 'M[F]_m) (U : 'cV[F]_m), forall T : transformer F H'.+1 d 1, looped T ->
    exists E, shared_matches L (fun=> V) (values (layers T)) E U) <-> ('C(L + H', H') <= m)%N.
Proof.
move=> infinite d_gt0; split=> [[V [U univ]]|le_m]; first exact: counting_lower_bound univ.
have [V [U [_ _ univ]]] := counting_universal F le_m; exists V, U => T loop.
have [E EP] := univ (values (layers T) 0); exists E => w; rewrite EP.
by apply: eq_wprod => l h _; rewrite [RHS]looped_values.
Qed.

(* Fields of characteristic zero are infinite, so the hypothesis holds for the reals. *)
Lemma char0_infinite (F : fieldType) :
  [char F] =i pred0 -> forall n, exists2 s : seq F, uniq s & size s = n.
Proof.
move=> F0 n; exists [seq i%:R | i <- iota 0 n]; last by rewrite size_map size_iota.
rewrite map_inj_uniq ?iota_uniq // => i j; wlog: i j / (i <= j)%N => [wl ij|le_ij /esym/eqP].
  by case/orP: (leq_total i j) => le; [|apply/esym]; apply: wl.
by rewrite -subr_eq0 -natrB // ((charf0P _).1 F0) subn_eq0 => ji; apply/eqP; rewrite eqn_leq le_ij.
Qed.
