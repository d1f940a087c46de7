(* The dimensions that the paper prints, against the exact one.                                         *)
(* S = H + H^2 + ... + H^L is word_count H L, and M = 2 d S + d_in H^L is matching_dimension H L d din. *)
(* Here "universal" means universal by matching; nothing is said about functional universality.         *)
(*                                                                                                      *)
(*   word_count_closed      (H - 1) S + H = H^(L+1)                                                     *)
(*   matching_dimension_least, tied_matching_dimension_least                                            *)
(*                          hosts of dimension m that are universal by matching exist, untied or        *)
(*                          tied, exactly when m >= M (d > 0 and d_in > 0)                              *)
(*   printed_looped_below_M the printed looped dimension (1 + S) max(2 d, d_in) is below M exactly      *)
(*                          when L >= 1, d_in < 2 d H and 2 d < H^L d_in                                *)
(*   printed_looped_decided, printed_looped_refuted, printed_looped_refuted_tied_targets                *)
(*                          thm:designed-R-looped: there no host, tied or not, is universal by          *)
(*                          matching; elsewhere some tied host is. Tied targets alone refute it too     *)
(*                          when L <= d and L <= d_in                                                   *)
(*   printed_random_M, printed_random_refuted                                                           *)
(*                          thm:random_universal_transformer: its printed d S + d_in H^L is short       *)
(*                          of M by d S, the factor 2 for Q and K                                       *)
(*   printed_looped_random_M, printed_looped_random_gap, printed_looped_random_refuted                  *)
(*                          thm:looped_random-R: its 2 d (1 + ... + H^(L-1)) + d_in H^L is short of M   *)
(*                          by 2 d (H^L - 1) = 2 d S (1 - 1/H), a factor H on Q and K                   *)
(*   shared_key_below_printed_looped, shared_query_below_shared_key                                     *)
(*                          d_in (S + H^L) <= d_in (1 + 2 S) < (1 + S) max(2 d, d_in) for d_in <= d,    *)
(*                          d > 0: the dimensions of the two hosts for logit attention                  *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words MatchingSystem PrefixTree TiedTrie Decision.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* thm:designed-R-looped *)
Definition printed_looped (H L d din : nat) : nat := (1 + word_count H L) * maxn (2 * d) din.

(* thm:random_universal_transformer, as displayed *)
Definition printed_random (H L d din : nat) : nat := d * word_count H L + H ^ L * din.

(* thm:looped_random-R *)
Definition printed_looped_random (H L d din : nat) : nat := 2 * d * (\sum_(t < L) H ^ t) + H ^ L * din.

(* shared-key tries and shared-query shift register: hosts for logit attention, d_in <= d *)
Definition shared_key (H L din : nat) : nat := din * (1 + 2 * word_count H L).
Definition shared_query (H L din : nat) : nat := din * (word_count H L + H ^ L).

(* The number of words *)

Lemma word_count0 H : word_count H 0 = 0.
Proof. by rewrite /word_count big_geq. Qed.

Lemma word_count_recr H L : word_count H L.+1 = word_count H L + H ^ L.+1.
Proof. by rewrite /word_count big_nat_recr. Qed.

(* a first letter, and a word or nothing *)
Lemma word_count_recl H L : word_count H L.+1 = H * (1 + word_count H L).
Proof.
elim: L => [|L IH]; first by rewrite word_count_recr !word_count0 expn1 addn0 muln1.
by rewrite word_count_recr {1}IH word_count_recr addnA [RHS]mulnDr -expnS.
Qed.

Lemma word_count_sum H L : word_count H L = H * \sum_(t < L) H ^ t.
Proof.
elim: L => [|L IH]; first by rewrite word_count0 big_ord0 muln0.
by rewrite word_count_recr big_ord_recr /= mulnDr -IH expnS.
Qed.

Lemma word_count_gt0 H L : (0 < word_count H L) = (0 < H) && (0 < L).
Proof. by case: L => [|L]; rewrite ?word_count0 ?andbF // word_count_recl muln_gt0 andbT. Qed.

Theorem word_count_closed H L : H.-1 * word_count H L + H = H ^ L.+1.
Proof.
case: H => [|H] /=; first by rewrite exp0n.
elim: L => [|L IH]; first by rewrite word_count0 muln0 expn1.
by rewrite word_count_recr mulnDr addnAC IH -mulSn -expnS.
Qed.

(* one head: M = 2 d L + d_in *)
Lemma matching_dimension_one_head L d din : matching_dimension 1 L d din = 2 * d * L + din.
Proof.
rewrite /matching_dimension word_count_sum exp1n !mul1n.
by under eq_bigr do rewrite exp1n; rewrite sum1_card card_ord.
Qed.

(* Comparisons *)

Theorem printed_looped_below_M H L d din :
  (printed_looped H L d din < matching_dimension H L d din) =
  [&& 0 < L, din < 2 * d * H & 2 * d < H ^ L * din].
Proof.
rewrite /printed_looped /matching_dimension; case: L => [|L] /=.
  by rewrite word_count0 muln0 expn0 !mul1n ltnNge leq_maxr.
case: (leqP din (2 * d)) => [le|lt].
  rewrite mulnDl mul1n addnC [word_count _ _ * _]mulnC ltn_add2l.
  case: (ltnP (2 * d) _) => [lt|ge]; last by rewrite andbF.
  rewrite andbT; apply/esym; case: H lt => [|[|H]]; first by rewrite exp0n.
    by rewrite exp1n mul1n ltnNge le.
  move=> lt; case: (posnP (2 * d)) => d0; last by rewrite (leq_ltn_trans le) // ltn_Pmulr.
  by move: le lt; rewrite d0 leqn0 => /eqP->; rewrite muln0.
have -> : ((1 + word_count H L.+1) * din < 2 * d * word_count H L.+1 + H ^ L.+1 * din) = (din < 2 * d * H).
  rewrite {1}word_count_recr addnA mulnDl ltn_add2r word_count_recl mulnA mulnC ltn_mul2r.
  by rewrite add1n.
case: (ltnP din _) => //= din_lt; apply/esym/(leq_trans lt).
by rewrite leq_pmull // expn_gt0; case: H din_lt => //; rewrite muln0.
Qed.

(* elsewhere it is enough *)
Corollary printed_looped_enough H L d din :
  (matching_dimension H L d din <= printed_looped H L d din) =
  [|| L == 0, 2 * d * H <= din | H ^ L * din <= 2 * d].
Proof. by rewrite leqNgt printed_looped_below_M !negb_and -eqn0Ngt -!leqNgt. Qed.

(* the factor 2 for Q and K *)
Theorem printed_random_M H L d din :
  matching_dimension H L d din = printed_random H L d din + d * word_count H L.
Proof. by rewrite /matching_dimension /printed_random mul2n -addnn mulnDl addnAC. Qed.

Corollary printed_random_below_M H L d din :
  (printed_random H L d din < matching_dimension H L d din) = [&& 0 < d, 0 < H & 0 < L].
Proof. by rewrite printed_random_M -ltn_subLR ?leqnn // subnn muln_gt0 word_count_gt0. Qed.

(* the factor H on Q and K *)
Theorem printed_looped_random_M H L d din : 0 < H ->
  matching_dimension H L d din = printed_looped_random H L d din + 2 * d * (H ^ L - 1).
Proof.
move=> H0; rewrite /matching_dimension /printed_looped_random addnAC -mulnDr; congr (_ * _ + _).
elim: L => [|L IH]; first by rewrite word_count0 big_ord0 expn0 subnn.
rewrite word_count_recr IH big_ord_recr /= -!addnA; congr (_ + _).
by rewrite addnBA ?addnBAC ?expn_gt0 ?H0.
Qed.

(* H (M - M_loop) = 2 d S (H - 1) *)
Corollary printed_looped_random_gap H L d din :
  H * (matching_dimension H L d din - printed_looped_random H L d din) = 2 * d * word_count H L * (H - 1).
Proof.
case: (posnP H) => [->|H0]; first by rewrite mul0n muln0.
rewrite printed_looped_random_M // addKn mulnCA -[RHS]mulnA; congr (_ * _).
by rewrite mulnBr muln1 -expnS -word_count_closed addnK subn1 mulnC.
Qed.

Corollary printed_looped_random_below_M H L d din : 0 < H ->
  (printed_looped_random H L d din < matching_dimension H L d din) = [&& 0 < d, 1 < H & 0 < L].
Proof.
move=> H0; rewrite printed_looped_random_M // -ltn_subLR ?leqnn // subnn !muln_gt0 /= subn_gt0.
congr (_ && _); case: L => [|L]; first by rewrite expn0 ltnn andbF.
case: H H0 => [|[|H]] // _; first by rewrite exp1n.
by rewrite andbT expnS (leq_trans _ (leq_pmulr _ _)) // expn_gt0.
Qed.

(* for d_in <= d the shared-key tries are smaller than the printed looped dimension *)
Theorem shared_key_below_printed_looped H L d din :
  din <= d -> (shared_key H L din < printed_looped H L d din) = (0 < d).
Proof.
move=> le; rewrite /shared_key /printed_looped (maxn_idPl _); last by rewrite (leq_trans le) // leq_pmull.
case: d le => [|d] le; first by rewrite !muln0 ltnn.
rewrite (leq_ltn_trans (leq_mul le (leqnn _))) // mulnA [X in _ < X]mulnC ltn_pmul2l //.
by rewrite mulnDl mul1n mulnC ltn_add2r.
Qed.

Theorem shared_query_below_shared_key H L din : shared_query H L din <= shared_key H L din.
Proof.
rewrite /shared_query /shared_key leq_mul2l; apply/orP; right.
rewrite mul2n -addnn addnA addnC leq_add2r.
by case: L => [|L] //; rewrite word_count_recr addnA leq_addl.
Qed.

(* M is the least dimension of a host that is universal by matching, untied or tied *)

Section Least.
Variables (R : comRingType) (H L d din m : nat).
Hypotheses (d0 : 0 < d) (din0 : 0 < din).

Theorem matching_dimension_least :
  (exists (S : nat -> layer R H d m) (U : 'M[R]_(m, din)), universal_by_matching L S U)
  <-> matching_dimension H L d din <= m.
Proof.
split=> [[S [U /(matching_lower_bound d0 din0)]] //|/(prefix_tree_universal R)[S [U [_ _ _ _ univ]]]].
by exists S, U.
Qed.

Theorem tied_matching_dimension_least :
  (exists (S : layer R H d m) (U : 'M[R]_(m, din)), universal_by_matching L (fun=> S) U)
  <-> matching_dimension H L d din <= m.
Proof.
split=> [[S [U /(matching_lower_bound d0 din0)]] //|/(tied_universal R)[RQ [RK [RV [U [_ _ _ _ univ]]]]]].
by exists (Layer RQ RK RV), U.
Qed.

End Least.

(* thm:designed-R-looped, decided: at the printed dimension a tied host exists exactly here *)
Theorem printed_looped_decided (R : comRingType) (H L d din : nat) : 0 < d -> 0 < din ->
  (exists (S : layer R H d (printed_looped H L d din)) (U : 'M[R]_(printed_looped H L d din, din)),
     universal_by_matching L (fun=> S) U)
  <-> [|| L == 0, 2 * d * H <= din | H ^ L * din <= 2 * d].
Proof.
by move=> d0 din0; rewrite -printed_looped_enough; apply: tied_matching_dimension_least.
Qed.

(* Universality by matching at the printed dimensions *)

Section Refuted.
Variables (R : comRingType) (H L d din : nat).

(* thm:designed-R-looped with the untied equations it cites: no parameters whatsoever match *)
Theorem printed_looped_refuted (S : nat -> layer R H d (printed_looped H L d din))
    (U : 'M[R]_(printed_looped H L d din, din)) :
  0 < L -> din < 2 * d * H -> 2 * d < H ^ L * din -> ~ universal_by_matching L S U.
Proof.
move=> L0 lt1 lt2; have d0 : 0 < d by case: d lt1.
have din0 : 0 < din by case: din lt2; rewrite // muln0.
by move=> /(matching_lower_bound d0 din0); rewrite leqNgt printed_looped_below_M L0 lt1 lt2.
Qed.

Corollary printed_looped_refuted_tied_host (S : layer R H d (printed_looped H L d din))
    (U : 'M[R]_(printed_looped H L d din, din)) :
  0 < L -> din < 2 * d * H -> 2 * d < H ^ L * din -> ~ universal_by_matching L (fun=> S) U.
Proof. exact: printed_looped_refuted. Qed.

(* read with tied targets, as in its proof, it still fails where L <= d and L <= d_in *)
Theorem printed_looped_refuted_tied_targets (S : nat -> layer R H d (printed_looped H L d din))
    (U : 'M[R]_(printed_looped H L d din, din)) :
  0 < L -> din < 2 * d * H -> 2 * d < H ^ L * din -> L <= d -> L <= din -> ~ universal_for_tied L S U.
Proof.
move=> L0 lt1 lt2 Ld Ldin; have din0 : 0 < din by apply: leq_trans Ldin.
by move=> /(tied_targets_lower_bound din0 Ld Ldin); rewrite leqNgt printed_looped_below_M L0 lt1 lt2.
Qed.

(* thm:random_universal_transformer with the displayed count *)
Theorem printed_random_refuted (S : nat -> layer R H d (printed_random H L d din))
    (U : 'M[R]_(printed_random H L d din, din)) :
  0 < H -> 0 < L -> 0 < d -> 0 < din -> ~ universal_by_matching L S U.
Proof.
move=> H0 L0 d0 din0 /(matching_lower_bound d0 din0).
by rewrite leqNgt printed_random_below_M d0 H0 L0.
Qed.

(* thm:looped_random-R with its own count *)
Theorem printed_looped_random_refuted (S : nat -> layer R H d (printed_looped_random H L d din))
    (U : 'M[R]_(printed_looped_random H L d din, din)) :
  1 < H -> 0 < L -> 0 < d -> 0 < din -> ~ universal_by_matching L S U.
Proof.
move=> H1 L0 d0 din0 /(matching_lower_bound d0 din0).
by rewrite leqNgt printed_looped_random_below_M ?(ltnW H1) // d0 H1 L0.
Qed.

End Refuted.

(* Numbers: the smallest shape where the looped dimension is too small, and the shapes (H, L, d, d_in) of
   the paper's tables *)

Example smallest : printed_looped 2 1 1 2 = 6 /\ matching_dimension 2 1 1 2 = 8.
Proof. by rewrite /printed_looped /matching_dimension !word_count_recr !word_count0. Qed.

Example table_shapes :
  [/\ matching_dimension 4 2 24 4 = 1024, matching_dimension 2 2 28 30 = 456,
      matching_dimension 2 3 28 30 = 1024 & matching_dimension 2 4 30 30 = 2280].
Proof. by rewrite /matching_dimension !word_count_recr !word_count0. Qed.

Example table_shapes_printed_looped :
  [/\ printed_looped 4 2 24 4 = 1008, printed_looped 2 2 28 30 = 392,
      printed_looped 2 3 28 30 = 840 & printed_looped 2 4 30 30 = 1860].
Proof. by rewrite /printed_looped !word_count_recr !word_count0. Qed.
