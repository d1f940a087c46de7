(* Softmax attention over the reals, with any mask, scale and bias.           *)
(*                                                                            *)
(* The rest of the library takes attention to be an arbitrary map; here it is *)
(* softmax itself. The reals and their exponential are mathcomp-analysis's,   *)
(* and with them come its three axioms: this folder rests on those, and the   *)
(* rest of the library on none.                                               *)
(*                                                                            *)
(*   softmax b P          row by row, the exponentials of the logits P of the *)
(*                        keys that the mask b shows, over their sum; 0 for   *)
(*                        the other keys, so that a query that sees no key    *)
(*                        has a row of zeros                                  *)
(*   rule                 what a layer's head does at positions i and j of a  *)
(*                        context of length n: the matrix between query and   *)
(*                        key (a scale; rotations, as in RoPE), the bias that *)
(*                        is added (ALiBi), and whether i sees j              *)
(*   softmax_attention r  the attention map of a rule                         *)
(*   scaled s c b         the rule of a scale, a bias and a mask              *)
(*   causal, window w     masks: the keys up to the query, and the last w of  *)
(*                        these                                               *)
(*   emulates_softmax     equal outputs for every rule, context length and    *)
(*                        input                                               *)
From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import reals sequences exp.
From Utfproof Require Import Transformer Words Selection Emulation PrefixTree.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Definition causal (i j : nat) := (j <= i)%N.
Definition window (w i j : nat) := (j <= i < j + w)%N.

Section Softmax.
Variables (R : realType) (n : nat).
Implicit Types (b : nat -> nat -> bool) (P : 'M[R]_n).

Definition softmax b P : 'M[R]_n :=
  \matrix_(i, j) if b i j then expR (P i j) / \sum_(k < n | b i k) expR (P i k) else 0.

Lemma weight_gt0 b P (i j : 'I_n) : b i j -> 0 < \sum_(k < n | b i k) expR (P i k).
Proof.
move=> bij; rewrite (bigD1 j) //= ltr_paddr ?expR_gt0 //.
by apply: sumr_ge0 => k _; apply/ltW/expR_gt0.
Qed.

Theorem softmax_rows b P (i : 'I_n) :
  [/\ forall j : 'I_n, b i j -> 0 < softmax b P i j,
      forall j : 'I_n, ~~ b i j -> softmax b P i j = 0 &
      \sum_j softmax b P i j = [exists j : 'I_n, b i j]%:R].
Proof.
split=> [j bij|j /negPf bij|]; rewrite ?mxE ?bij // ?divr_gt0 ?expR_gt0 ?(weight_gt0 P bij) //.
have [/existsP[j bij]|/existsPn none] := boolP [exists j : 'I_n, b i j].
  rewrite (eq_bigr _ (fun k _ => mxE _ _ i k)) -big_mkcond -mulr_suml divff //.
  exact/lt0r_neq0/(weight_gt0 P bij).
by rewrite big1 // => j _; rewrite mxE (negPf (none j)).
Qed.

(* constants added to the logits of a query, and the logits of hidden keys *)
Theorem softmax_shift b P P' (c : 'I_n -> R) :
  (forall i j : 'I_n, b i j -> P' i j = P i j + c i) -> softmax b P' = softmax b P.
Proof.
move=> eP; apply/matrixP => i j; rewrite !mxE; case: ifP => // bij.
have e (k : 'I_n) : b i k -> expR (P' i k) = expR (P i k) * expR (c i) by move=> /eP->; rewrite expRD.
rewrite e // (eq_bigr _ e) -mulr_suml invfM mulrACA divff ?mulr1 //.
exact/lt0r_neq0/expR_gt0.
Qed.

(* the differences of the logits can be read from the attention that they give *)
Lemma softmax_logits b P P' (i j k : 'I_n) :
  b i j -> b i k -> softmax b P' = softmax b P -> P' i j - P' i k = P i j - P i k.
Proof.
move=> bij bik e; apply: expR_inj; rewrite !expRB.
have ratio (Q : 'M_n) : expR (Q i j) / expR (Q i k) = softmax b Q i j / softmax b Q i k.
  rewrite !mxE bij bik invf_div mulrA divfK //; exact/lt0r_neq0/(weight_gt0 Q bij).
by rewrite !ratio e.
Qed.

End Softmax.

Section Attention.
Variables (R : realType) (H d : nat).

(* of a layer, a head, a context length, the positions of query and key *)
Record rule := Rule {
  form : nat -> 'I_H -> nat -> nat -> nat -> 'M[R]_d;
  bias : nat -> 'I_H -> nat -> nat -> nat -> R;
  mask : nat -> 'I_H -> nat -> nat -> nat -> bool }.

Definition logits (r : rule) l h n (Q K : 'M[R]_(n, d)) : 'M[R]_n :=
  \matrix_(i, j) ((row i Q *m form r l h n i j *m (row j K)^T) 0 0 + bias r l h n i j).

Definition softmax_attention (r : rule) : attention_map R H d :=
  fun l h n Q K => softmax (mask r l h n) (logits r l h Q K).

Definition scaled (s : nat -> 'I_H -> nat -> R) c b : rule := Rule (fun l h n _ _ => (s l h n)%:M) c b.

Lemma attention_scaled s c b l h n (Q K : 'M[R]_(n, d)) :
  softmax_attention (scaled s c b) l h Q K =
  softmax (b l h n) (\matrix_(i, j) (s l h n * (Q *m K^T) i j + c l h n i j)).
Proof.
congr softmax; apply/matrixP => i j; rewrite [LHS]mxE [RHS]mxE /= mul_mx_scalar -scalemxAl mxE.
by congr (_ * _ + _); rewrite !mxE; apply: eq_bigr => k _; rewrite !mxE.
Qed.

Section Prefix.
Variables (r : rule) (n k : nat).
Hypothesis before : forall l h i j, mask r l h (n + k) i j -> causal i j.
Hypothesis same : forall l h i j,
  [/\ form r l h (n + k) i j = form r l h n i j, bias r l h (n + k) i j = bias r l h n i j &
      mask r l h (n + k) i j = mask r l h n i j].

Lemma logits_prefix l h (Q K : 'M[R]_(n + k, d)) i j :
  logits r l h Q K (lshift k i) (lshift k j) = logits r l h (usubmx Q) (usubmx K) i j.
Proof. by rewrite !mxE !row_usubmx; have [-> -> _] := same l h i j. Qed.

Lemma attention_prefix l h (Q K : 'M[R]_(n + k, d)) :
  usubmx (softmax_attention r l h Q K) = row_mx (softmax_attention r l h (usubmx Q) (usubmx K)) 0.
Proof.
have hidden (i : 'I_n) (j : 'I_k) : mask r l h (n + k) (lshift k i) (rshift n j) = false.
  by apply/negP => /before; rewrite /causal /= leqNgt (leq_trans (ltn_ord i)) ?leq_addr.
have shown (i j : 'I_n) : mask r l h (n + k) (lshift k i) (lshift k j) = mask r l h n i j.
  by have [_ _] := same l h i j.
apply/matrixP => i j; rewrite mxE [RHS]mxE [LHS]mxE.
case: (split_ordP j) => a ->; last by rewrite hidden mxE.
rewrite shown [RHS]mxE logits_prefix big_split_ord /= [X in _ + X]big_pred0 ?addr0.
  congr (if _ then _ / _ else _); apply: eq_big => [q|q _]; last by rewrite logits_prefix.
  exact: (shown i q).
exact: (hidden i).
Qed.

End Prefix.

(* A mask that shows nothing behind the query, and a rule that does not depend on the length of the
   context: what stands behind a token does not change what is computed for it. *)
Theorem softmax_prefix (r : rule) D (S : nat -> layer R H d D) L n k (X : 'M[R]_(n, D))
    (Y : 'M[R]_(k, D)) :
  (forall l h i j, mask r l h (n + k) i j -> causal i j) ->
  (forall l h i j, [/\ form r l h (n + k) i j = form r l h n i j, bias r l h (n + k) i j = bias r l h n i j &
                       mask r l h (n + k) i j = mask r l h n i j]) ->
  usubmx (net (softmax_attention r) S L (col_mx X Y)) = net (softmax_attention r) S L X.
Proof.
move=> before same; elim: L => [|l IH] /=; first exact: col_mxKu.
have sums (F : 'I_H -> 'M[R]_(n + k, D)) : usubmx (\sum_h F h) = \sum_h usubmx (F h).
  by apply/matrixP => i j; rewrite mxE !summxE; apply: eq_bigr => h _; rewrite mxE.
rewrite /step sums; apply: eq_bigr => h _; rewrite -!mul_usub_mx attention_prefix // -!mul_usub_mx IH.
by rewrite -[X in _ *m X *m _]vsubmxK mul_row_col mul0mx addr0 IH.
Qed.

(* so with the causal mask, and with sliding windows *)
Corollary causal_prefix (s : nat -> 'I_H -> R) D (S : nat -> layer R H d D) L n k (X : 'M[R]_(n, D))
    (Y : 'M[R]_(k, D)) :
  let A b := softmax_attention (scaled (fun l h _ => s l h) (fun _ _ _ _ _ => 0) (fun _ _ _ => b)) in
  usubmx (net (A causal) S L (col_mx X Y)) = net (A causal) S L X /\
  forall w, usubmx (net (A (window w)) S L (col_mx X Y)) = net (A (window w)) S L X.
Proof. by split=> [|w]; apply: softmax_prefix => // l h i j /andP[]. Qed.

End Attention.

(* What the library says of an arbitrary attention map, said of softmax *)

Lemma eq_net (R : ringType) H d (A A' : attention_map R H d) D (S : nat -> layer R H d D) L n
    (X : 'M[R]_(n, D)) :
  (forall l h k (Q K : 'M[R]_(k, d)), A l h k Q K = A' l h k Q K) -> net A S L X = net A' S L X.
Proof. by move=> eA; elim: L => //= l ->; apply: eq_bigr => h _; rewrite eA. Qed.

Section Emulation.
Variables (R : realType) (H d din m L : nat).
Variables (S : nat -> layer R H d m) (U : 'M[R]_(m, din)).

Definition emulates_softmax (T : nat -> layer R H d din) (E : 'M[R]_(din, m)) : Prop :=
  forall (r : rule R H d) n (X : 'M[R]_(n, din)),
    net (softmax_attention r) S L (X *m E) *m U = net (softmax_attention r) T L X.

Theorem matching_emulates_softmax T E : matches L S U T E -> emulates_softmax T E.
Proof. by move=> /matching_emulates em r n X; apply: em. Qed.

Theorem universal_by_matching_softmax :
  universal_by_matching L S U -> forall T : transformer R H d din, exists E, emulates_softmax (layers T) E.
Proof. by move=> univ T; have [E /matching_emulates_softmax] := univ T; exists E. Qed.

(* where the logits alone agree: any scale, bias and mask, but no rotation *)
Theorem matching_logits_emulates_softmax T E : matches_logits L S U T E ->
  forall s c b n (X : 'M[R]_(n, din)), let A := softmax_attention (scaled d s c b) in
  net A S L (X *m E) *m U = net A T L X.
Proof.
move=> /matching_logits_emulates em s c b n X A.
pose f : logit_map R H := fun l h n P => softmax (b l h n) (\matrix_(i, j) (s l h n * P i j + c l h n i j)).
have eA l h k (Q K : 'M[R]_(k, d)) : A l h k Q K = logit_attention f l h Q K.
  exact: attention_scaled.
by rewrite !(eq_net _ _ _ eA); apply: em.
Qed.

End Emulation.

(* The paper's theorem by its own definition: a host of {0,1} matrices, and softmax *)
Theorem sparse_universal_softmax (R : realType) (H d din L m : nat) :
  (matching_dimension H L d din <= m)%N ->
  exists (S : nat -> layer R H d m) (U : 'M[R]_(m, din)),
  [/\ forall l h, [/\ is01 (lQ (S l) h), is01 (lK (S l) h) & is01 (lV (S l) h)], is01 U,
      forall l h, [/\ nnz (lQ (S l) h) <= m, nnz (lK (S l) h) <= m & nnz (lV (S l) h) <= m]%N,
      (nnz U <= m)%N &
      forall T : transformer R H d din, exists E, emulates_softmax L S U (layers T) E].
Proof.
move=> /(prefix_tree_emulates R)[S [U [S01 U01 Sn Un univ]]]; exists S, U; split=> // T.
by have [E em] := univ T; exists E => r n X; apply: em.
Qed.

(* lem:multieqatt read literally, with the equations of one layer alone, is refuted by softmax itself:
   for every scale but 0 and every mask with which token 1 sees tokens 0 and 1. Host and target are
   those of multieqatt_one_layer. *)

Section Literal.
Variables (R : realType) (s : R) (b : nat -> nat -> bool).
Hypotheses (s0 : s != 0) (b10 : b 1 0) (b11 : b 1 1).
Let A := softmax_attention (scaled (H := 1) 1 (fun _ _ _ => s) (fun _ _ _ _ _ => 0) (fun _ _ _ => b)).
Let i1 : 'I_2 := lift ord0 ord0.

(* the tokens 0 and 1 *)
Definition two_tokens : 'M[R]_(2, 1) := \matrix_(i, _) (i : nat)%:R.
Let X := two_tokens.

(* the attention of the first layer, and what stands in the stream after it *)
Let w (q : bool) := softmax b (\matrix_(i < 2, j < 2) (q%:R * s * (i * j)%:R)).

Lemma stream_first q (i : 'I_2) : net A (switch R q) 1 X i 0 = w q i i1.
Proof.
rewrite /= /step big_ord1 /= mulmx1 orbF.
have -> h : A 0%N h (X *m q%:R%:M) (X *m 1%:M) = w q.
  rewrite [LHS]attention_scaled; congr softmax; apply/matrixP => j k.
  by rewrite mul_mx_scalar mulmx1 !mxE big_ord1 !mxE addr0 natrM !mulrA [s * _]mulrC.
by rewrite mxE !big_ord_recl big_ord0 !mxE /= mulr0 add0r addr0 mulr1.
Qed.

Lemma second_row q : w q i1 i1 = expR (q%:R * s) / (1 + expR (q%:R * s)).
Proof. by rewrite mxE b11 big_mkcond !big_ord_recl big_ord0 /= b10 b11 !mxE /= mulr0 mulr1 expR0 addr0. Qed.

Lemma first_row q : w q ord0 i1 = if b 0 1 then (if b 0 0 then 2%:R^-1 else 1) else 0.
Proof.
rewrite mxE; case b01: (b _ _) => //.
rewrite big_mkcond !big_ord_recl big_ord0 /= b01 !mxE /= !mulr0 expR0 addr0.
by case: ifP => _; rewrite ?add0r ?divr1 // mul1r.
Qed.

Theorem multieqatt_literal_softmax :
  let A := softmax_attention (scaled 1 (fun _ _ _ => s) (fun _ _ _ _ _ => 0) (fun _ _ _ => b)) in
  exists (S T : nat -> layer R 1 1 1) (E U : 'M[R]_1) (X : 'M[R]_(2, 1)),
  [/\ forall (w : 1.-tuple 'I_1) h, E *m wprod (values S) 0 w *m lQ (S 1%N) h
                                    = wprod (values T) 0 w *m lQ (T 1%N) h,
      forall (w : 1.-tuple 'I_1) h, E *m wprod (values S) 0 w *m lK (S 1%N) h
                                    = wprod (values T) 0 w *m lK (T 1%N) h,
      forall w : 2.-tuple 'I_1, E *m wprod (values S) 0 w *m U = wprod (values T) 0 w &
      att A S (X *m E) 1 ord0 <> att A T X 1 ord0].
Proof.
move=> A'; exists (switch R false), (switch R true), 1%:M, 1%:M, X.
split=> [v h|v h|v|]; try by rewrite !switch_value ?mulmx1 ?mul1mx.
rewrite mulmx1.
have att1 q : att A (switch R q) X 1 ord0 =
    softmax b (\matrix_(i, j) (s * (w q i i1 * w q j i1))).
  rewrite [LHS]attention_scaled; congr softmax; apply/matrixP => i j.
  rewrite [LHS]mxE [RHS]mxE addr0 -!stream_first; set N := net _ _ _ _.
  have -> : lQ (switch R q 1) ord0 = 1%:M by rewrite /= orbT.
  by rewrite !mulmx1 mxE big_ord1 [_^T _ _]mxE.
have [c t] := (first_row, second_row); clearbody w.
rewrite !att1 => /(softmax_logits (i := i1) (j := i1) (k := ord0) b11 b10).
rewrite !mxE -!mulrBr => /(mulfI s0); rewrite !c !t mul0r mul1r expR0.
set a := expR s / _; set k := if _ then _ else _; pose u : R := 2%:R^-1.
have uu : u + u = 1 by rewrite -mulr2n -[_ *+ 2]mulr_natl divff ?pnatr_eq0.
have -> : 1 / (1 + 1) = u by rewrite mul1r.
have u0 : 0 < u by rewrite invr_gt0 ltr0n.
have e0 : 0 < 1 + expR s by rewrite addr_gt0 ?ltr01 ?expR_gt0.
have a0 : 0 < a by rewrite divr_gt0 ?expR_gt0.
have au : a - u != 0.
  rewrite subr_eq0 /u -[2%:R^-1]mul1r eqr_div ?pnatr_eq0 ?(lt0r_neq0 e0) // mul1r mulr_natr mulr2n.
  by rewrite (inj_eq (addIr _)) -expR0 (inj_eq (@expR_inj R)).
have ak : a + u - k != 0.
  rewrite /k; case: ifP => _; last by rewrite subr0 lt0r_neq0 ?addr_gt0.
  case: ifP => _; first by rewrite -/u addrK lt0r_neq0.
  by rewrite -[X in _ - X]uu opprD addrA addrK.
move=> /esym/eqP; rewrite -subr_eq0 => /eqP e; have /eqP[] := mulf_neq0 au ak.
rewrite -{}e [LHS]mulrBr -subr_sqr mulrBl [in RHS]mulrBr [in RHS]mulrBr -!expr2 !opprD !opprK.
exact: addrACA.
Qed.

End Literal.
