(* Narrow heads: if 2 d <= d_in, M is the least m for all targets by attention-matching (Theorem N).   *)
(*                                                                                                    *)
(* The first d unit columns and the next d are told apart. A column of R_all that reads queries (or   *)
(* keys) of the word w is isolated by a target whose queries read the first kind at the end of w      *)
(* alone, and whose value matrices keep the first kind along w alone. All its readers have rank d, so *)
(* every solution of the attention-matching equations is a solution of the matching equations up to   *)
(* invertible matrices (solutions_factor), and the first d rows show the column alone.                *)
(*                                                                                                    *)
(*   universal_by_logits   one fixed host, tied or not, and for every target an E that solves the     *)
(*                         attention-matching equations                                               *)
(*   narrow_left_inverse   then R_all has a left inverse, if 2 d <= d_in and H >= 2 or L <= 1         *)
(*   narrow_decision       so it is universal by matching; the converse is matches_matches_logits     *)
(*   narrow_lower_bound    m >= M = 2 d S + d_in H^L                                                  *)
(*   narrow_least          such hosts exist exactly from m = M on                                     *)
(*   narrow_rank           over a field: universal by attention-matching iff rank R_all = M           *)
(*                                                                                                    *)
(* Attention-matching is meant as equations. The targets have equal forms in many heads, so nothing   *)
(* is said of equal outputs: those may need fewer dimensions.                                         *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words MatchingSystem Emulation Decision Dimensions Optimum.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

Definition universal_by_logits (R : ringType) (H d din m L : nat) (S : nat -> layer R H d m)
    (U : 'M[R]_(m, din)) : Prop :=
  forall T : transformer R H d din, exists E : 'M[R]_(din, m), matches_logits L S U (layers T) E.

Section Narrow.
Variables (R : comUnitRingType) (H d din L : nat).
Hypotheses (narrow : (2 * d <= din)%N) (heads : (1 < H)%N || (L <= 1)%N).

(* the unit columns 1, ..., d (false) and d + 1, ..., 2 d (true) *)
Definition units (s : bool) : 'M[R]_(din, d) := \matrix_(i, j) (i == s * d + j :> nat)%N%:R.

Lemma units_mul s t : (units s)^T *m units t = (s == t)%:R%:M.
Proof.
have ltd (i : 'I_d) : (s * d + i < din)%N.
  apply: leq_trans narrow; rewrite mul2n -addnn -addnS leq_add //.
  by case: (s); rewrite ?mul1n ?mul0n.
apply/matrixP => i j; rewrite !mxE (bigD1 (Ordinal (ltd i))) //= !mxE /= eqxx mul1r.
rewrite big1 ?addr0 => [|k]; last by rewrite -val_eqE !mxE /= => /negbTE ->; rewrite mul0r.
case: (s =P t) => [<-|ne]; first by rewrite eqn_add2l mulr1n.
rewrite mul0rn; suff -> : (s * d + i == t * d + j)%N = false by [].
have lo := ltn_ord i; have lo' := ltn_ord j; apply/negbTE.
case: (s) (t) ne => -[] // _; rewrite ?mul1n ?mul0n ?add0n neq_ltn.
  by rewrite (leq_trans lo') ?orbT // leq_addr.
by rewrite (leq_trans lo) // leq_addr.
Qed.

(* value matrices that keep one kind of columns: V l h keeps the kind s l h *)
Section Keep.
Variables (s : nat -> 'I_H -> bool).
Let V l h := units (s l h) *m (units (s l h))^T.

Fixpoint stays (k : bool) (l0 : nat) (w : seq 'I_H) : bool :=
  if w is h :: w' then (s l0 h == k) && stays k l0.+1 w' else true.

Lemma units_wprod k l0 w : (units k)^T *m wprod V l0 w = (stays k l0 w)%:R *: (units k)^T.
Proof.
elim: w l0 => [|h w IH] l0 /=; first by rewrite mulmx1 scale1r.
rewrite /V !mulmxA units_mul eq_sym; case: eqP => [->|_]; first by rewrite mul1mx IH.
by rewrite mul_scalar_mx scale0r mul0mx scale0r.
Qed.

Lemma units_wprod_units k t l0 w :
  (units k)^T *m (wprod V l0 w *m units t) = (stays k l0 w && (k == t))%:R%:M.
Proof. by rewrite mulmxA units_wprod -scalemxAl units_mul -mulnb natrM scale_scalar_mx. Qed.

End Keep.

(* the kind false is kept along p alone *)
Let off (p : seq 'I_H) (l : nat) (h : 'I_H) : bool := ~~ follows p l h.

Lemma stays_on p l0 w : stays (off p) false l0 w = prefix w (drop l0 p).
Proof.
elim: w l0 => [|h w IH] l0 /=; first by rewrite prefix0s.
rewrite IH eqbF_neg negbK -[l0.+1]add1n -drop_drop drop1 /follows.
by case: (drop l0 p) => [|k r] //=; rewrite eq_sym.
Qed.

Lemma stays_off p l : (l < L)%N -> exists w : l.-tuple 'I_H, stays (off p) true 0 w.
Proof.
case/orP: heads => [H1 _|L1 lL]; last first.
  have -> : l = 0%N by move: lL; rewrite ltnNge; case: (l) => // n; rewrite (leq_trans L1).
  by exists [tuple].
have ex : forall l0, exists h, off p l0 h.
  move=> l0; pose h0 := Ordinal (ltnW H1); case: (boolP (follows p l0 h0)) => [/eqP e|]; last by exists h0.
  by exists (Ordinal H1); rewrite /off /follows e; apply/eqP => -[].
suff ex_w : forall n l0, exists w : n.-tuple 'I_H, stays (off p) true l0 w by apply: ex_w.
elim=> [|n IH] l0; first by exists [tuple].
by have [h oh] := ex l0; have [w ow] := IH l0.+1; exists [tuple of h :: w]; rewrite /= oh.
Qed.

(* The target that isolates the queries (key = false) or keys (key = true) of the word p, h0 *)
Definition narrow_target (key : bool) (p : seq 'I_H) (h0 : 'I_H) : transformer R H d din :=
  let here l h := (l == size p) && (h == h0) in
  Transformer (fun l h => units (~~ (here l h && ~~ key))) (fun l h => units (~~ (here l h && key)))
    (fun l h => units (~~ follows p l h)) (fun l h => (units (~~ follows p l h))^T).

Lemma narrow_readable key p h0 : (size p < L)%N -> readable L (layers (narrow_target key p h0)).
Proof.
move=> pL l h lL; set T := layers _.
have left_inv (b : bool) : b && (l == size p) || ~~ b -> exists B : l.-tuple 'I_H -> 'M[R]_(d, din),
    \sum_w B w *m (wprod (values T) 0 w *m units (~~ b)) = 1%:M.
  move=> bP; have [w sw] : exists w : l.-tuple 'I_H, stays (off p) (~~ b) 0 w.
    case: b bP => /= [/orP[/eqP lp|//]|_]; last exact: stays_off.
    by exists (Tuple (introT eqP (esym lp))); rewrite stays_on drop0 prefix_refl.
  exists (fun v => if v == w then (units (~~ b))^T else 0).
  rewrite (bigD1 w) //= eqxx big1 ?addr0 => [|v /negPf ->]; last exact: mul0mx.
  by rewrite [_ *m (_ *m _)]units_wprod_units sw eqxx.
have here b : ((l == size p) && (h == h0) && b) && (l == size p) || ~~ ((l == size p) && (h == h0) && b).
  by case: (l == size p); rewrite ?andbT ?orbN.
have [B eB] := left_inv _ (here (~~ key)); have [C eC] := left_inv _ (here key).
by exists B, C.
Qed.

Section Host.
Variables (m : nat) (S : nat -> layer R H d m) (U : 'M[R]_(m, din)).
Hypotheses (d0 : (0 < d)%N) (univ : universal_by_logits L S U).

(* a combination of the rows of R_all that is the unit row of c *)
Let isolated (c : column H d din L) : Prop := exists x : 'rV[R]_m, x *m Rall L S U = delta_mx 0 (enum_rank c).

Lemma isolated_reader (w : word H L) (j : 'I_(d + d)) : isolated (inl (w, j)).
Proof.
pose key : bool := if split j is inr _ then true else false.
have [E mE] := univ (narrow_target key (prew w) (lastw w)).
have pL : (size (prew w) < L)%N by rewrite size_tuple ltn_ord.
have [G [uG /matchesP eE]] := (solutions_factor S U E (narrow_readable key (lastw w) pL)).1 mE.
pose g := if key then (invmx (G (tag w) (lastw w)))^T else G (tag w) (lastw w).
have ug : g \in unitmx by rewrite /g; case: (key); rewrite ?unitmx_tr ?unitmx_inv uG ?ltn_ord.
pose T := layers (narrow_target key (prew w) (lastw w)).
have read (v : seq 'I_H) b (A : 'M[R]_d) :
    (units false)^T *m (wprod (values (gauged G T)) 0 v *m (units (~~ b) *m A))
    = (prefix v (prew w) && b)%:R *: A.
  rewrite 2!mulmxA -(mulmxA _ _ (units _)) [X in X *m _](@units_wprod_units (off (prew w))).
  by rewrite mul_scalar_mx stays_on drop0; case: (b).
pose side (i : 'I_d) : 'I_(d + d) := if key then rshift d i else lshift d i.
pose J : 'M[R]_(d, #|column H d din L|) := \matrix_(i, c) (enum_val c == inl (w, side i))%:R.
have JE : (units false)^T *m (E *m Rall L S U) = g *m J.
  rewrite eE /Wall mul_pack; apply/matrixP => i c; rewrite [RHS]mxE.
  under eq_bigr => k _ do rewrite mxE; rewrite mxE.
  case: (enum_val c) => [[w' j']|[v j']]; last first.
    rewrite big1 => [|k _]; last exact: mulr0.
    rewrite [_ *m _](@units_wprod (off (prew w))) stays_on drop0.
    case: (boolP (prefix v _)) => [/prefixP[r e]|_]; last by rewrite scale0r mxE.
    by move: pL; rewrite e size_cat size_tuple ltnNge leq_addr.
  under eq_bigr => k _ do rewrite inl_eqE xpair_eqE.
  have tagE : (tag w' == size (prew w) :> nat) = (tag w' == tag w :> nat) by rewrite size_tuple.
  case: (split_ordP j') => a ->; rewrite ?split_lshift ?split_rshift.
    transitivity ((((w' == w) && ~~ key)%:R *: G (tag w') (lastw w')) i a).
      rewrite word_prefixE -tagE -[X in (nat_of_bool X)%:R]andbA.
      exact: (congr1 (fun A : 'M_d => A i a) (read _ _ _)).
    rewrite mxE (bigD1 a) //= big1 => [|k ka]; last first.
      rewrite /side; case: (key); rewrite ?eq_lrshift ?andbF ?mulr0 //.
      by rewrite (inj_eq (@lshift_inj _ _)) (eq_sym a) (negPf ka) andbF mulr0.
    rewrite addr0 /side /g mulrC; case: (w' =P w) => [->|_]; last by rewrite !mulr0.
    by case: (key); rewrite /= ?eqxx ?eq_lrshift ?mulr0.
  transitivity ((((w' == w) && key)%:R *: (invmx (G (tag w') (lastw w')))^T) i a).
    rewrite word_prefixE -tagE -[X in (nat_of_bool X)%:R]andbA.
    exact: (congr1 (fun A : 'M_d => A i a) (read _ _ _)).
  rewrite mxE (bigD1 a) //= big1 => [|k ka]; last first.
    rewrite /side; case: (key); rewrite ?eq_rlshift ?andbF ?mulr0 //.
    by rewrite (inj_eq (@rshift_inj _ _)) (eq_sym a) (negPf ka) andbF mulr0.
  rewrite addr0 /side /g mulrC; case: (w' =P w) => [->|_]; last by rewrite !mulr0.
  by case: (key); rewrite /= ?eqxx ?eq_rlshift ?mulr0.
have [i ->] : exists i, j = side i.
  by rewrite /side /key; case: (split_ordP j) => i ->; exists i.
exists (row i (invmx g *m (units false)^T *m E)).
rewrite -row_mul -!mulmxA JE mulKmx //; apply/rowP => c; rewrite !mxE eqxx /=.
by rewrite -(inj_eq enum_val_inj) enum_rankK.
Qed.

Lemma isolated_output (v : L.-tuple 'I_H) (j : 'I_din) : isolated (inr (v, j)).
Proof.
have din0 : (0 < din)%N by apply: leq_trans narrow; rewrite muln_gt0.
pose c : column H d din L := inr (v, j); pose T := layers (isolating R d0 din0 c).
have [E [_ eU]] := univ (isolating R d0 din0 c); pose r := isolating_row din0 c.
have /fin_all_exists[x xP] (k : 'I_#|column H d din L|) : exists x : 'rV[R]_m,
    if enum_val k is inl _ then x *m Rall L S U = delta_mx 0 k else True.
  case e: (enum_val k) => [[w a]|]; last by exists 0.
  by have [x xP] := isolated_reader w a; exists x; rewrite xP -e enum_valK.
pose y := row r E *m Rall L S U.
pose readers (k : 'I_#|column H d din L|) := if enum_val k is inl _ then true else false.
exists (row r E - \sum_(k | readers k) y 0 k *: x k).
rewrite mulmxBl -/y mulmx_suml.
have -> : \sum_(k | readers k) y 0 k *: x k *m Rall L S U = \sum_(k | readers k) y 0 k *: delta_mx 0 k.
  by apply: eq_bigr => k; rewrite /readers -scalemxAl; have := xP k; case: (enum_val k) => // p ->.
apply/rowP => k; rewrite [LHS]mxE [X in _ + X]mxE summxE [RHS]mxE.
have -> : \sum_(i | readers i) (y 0 i *: delta_mx 0 i : 'rV_#|column H d din L|) 0 k
    = if readers k then y 0 k else 0.
  rewrite big_mkcond (bigD1 k) //= big1 => [|i ik]; first by rewrite addr0 !mxE !eqxx mulr1.
  by case: ifP => // _; rewrite !mxE (eq_sym k) (negPf ik) andbF mulr0.
rewrite /readers; case e: (enum_val k) => [[w a]|[v' a]].
  by rewrite subrr -(inj_eq enum_val_inj) e enum_rankK.
have := row_isolating_Wall R d0 din0 c => /rowP/(_ k); rewrite [RHS]mxE => <-.
by rewrite subr0 /y -row_mul /Rall mul_pack !mxE e mulmxA eU.
Qed.

(* Theorem N, for hosts over any commutative ring, tied or not *)
Theorem narrow_left_inverse : exists B : 'M[R]_(#|column H d din L|, m), B *m Rall L S U = 1%:M.
Proof.
have /fin_all_exists[x xP] (k : 'I_#|column H d din L|) : exists x : 'rV[R]_m, x *m Rall L S U = delta_mx 0 k.
  rewrite -(enum_valK k); case: (enum_val k) => -[w j]; [exact: isolated_reader|exact: isolated_output].
by exists (\matrix_k x k); apply/row_matrixP => k; rewrite row_mul rowK xP row1.
Qed.

Theorem narrow_decision : universal_by_matching L S U.
Proof.
have [B e] := narrow_left_inverse => T.
by have [E EP] := left_inverse_any_rhs e (Wall L (layers T)); exists E; apply/matchesP.
Qed.

Theorem narrow_lower_bound : (matching_dimension H L d din <= m)%N.
Proof. by have [B /mulmx1_min] := narrow_left_inverse; rewrite card_column. Qed.

End Host.
End Narrow.

(* Universal by attention-matching and universal by matching are the same, and M is least: hosts of that *)
(* dimension are tied tries (TiedTrie.v). narrow_decision says it for each host.                         *)
Theorem narrow_least (R : comUnitRingType) (H d din L m : nat) :
  (0 < d)%N -> (2 * d <= din)%N -> (1 < H)%N || (L <= 1)%N ->
  (exists (S : nat -> layer R H d m) (U : 'M[R]_(m, din)), universal_by_logits L S U)
  <-> (matching_dimension H L d din <= m)%N.
Proof.
move=> d0 narrow heads; split=> [[S [U univ]]|leM]; first exact: narrow_lower_bound univ.
have din0 : (0 < din)%N by apply: leq_trans narrow; rewrite muln_gt0.
have [S [U univ]] := (matching_dimension_least R H L m d0 din0).2 leM; exists S, U => T.
by have [E /matches_matches_logits] := univ T; exists E.
Qed.

(* Over a field the rank of R_all decides *)
Theorem narrow_rank (F : fieldType) (H d din L m : nat) (S : nat -> layer F H d m) (U : 'M[F]_(m, din)) :
  (0 < d)%N -> (2 * d <= din)%N -> (1 < H)%N || (L <= 1)%N ->
  universal_by_logits L S U <-> \rank (Rall L S U) = matching_dimension H L d din.
Proof.
move=> d0 narrow heads; have din0 : (0 < din)%N by apply: leq_trans narrow; rewrite muln_gt0.
rewrite -decision_theorem //; split=> [univ|univ T]; first exact: narrow_decision univ.
by have [E /matches_matches_logits] := univ T; exists E.
Qed.
