(* Shared attention: equal outputs for every attention force the word equations.  *)
(*                                                                                *)
(* In the shared-attention model (paper: thm:lower_bound_utf and its appendix)    *)
(* the attention matrices P l h come from outside, the same for host and target.  *)
(*                                                                                *)
(*   attend f           the {0,1} row-stochastic matrix "token i attends to f i"  *)
(*   row_stochastic P   nonnegative entries, every row sums to 1                  *)
(*   shared_emulates C  equal outputs for all contexts, inputs and attention      *)
(*                      matrices in the class C                                   *)
(*                                                                                *)
(* The output is sum_w P_w X V_w over words w, by shared_unroll of Emulation.     *)
(*                                                                                *)
(* shared_matching_emulates   the word equations imply equal outputs              *)
(* spanning_lemma       conversely two tokens and the two causal matrices         *)
(*                      I = (1 0; 0 1) and B = (1 0; 1 0) already force them      *)
(* spanning_lemma_stochastic  the paper's case: all row-stochastic matrices       *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Emulation.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Spanning.
Variables (R : ringType) (H din m L : nat).
Variables (V : nat -> 'I_H -> 'M[R]_m) (M : nat -> 'I_H -> 'M[R]_din).
Variables (E : 'M[R]_(din, m)) (U : 'M[R]_(m, din)).

Definition shared_emulates (C : forall n, 'M[R]_n -> Prop) : Prop :=
  forall n (P : nat -> 'I_H -> 'M[R]_n), (forall l h, C n (P l h)) ->
  forall X : 'M[R]_(n, din), shared_net P V L (X *m E) *m U = shared_net P M L X.

(* The emulation lemma of the shared model: any attention matrices whatever *)
Theorem shared_matching_emulates :
  shared_matches L V M E U -> shared_emulates (fun _ _ => True).
Proof.
move=> match_w n P _ X; rewrite !shared_unroll mulmx_suml; apply: eq_bigr => w _.
by rewrite -match_w !mulmxA.
Qed.

(* hard attention: token i attends to the token f i and to no other *)
Definition attend n (f : 'I_n -> 'I_n) : 'M[R]_n := \matrix_(i, j) (j == f i)%:R.

Lemma attend_mul n (f : 'I_n -> 'I_n) D (X : 'M[R]_(n, D)) i : row i (attend f *m X) = row (f i) X.
Proof.
apply/rowP => j; rewrite !mxE (bigD1 (f i)) //= !mxE eqxx mul1r big1 ?addr0 // => k /negbTE ne.
by rewrite mxE ne mul0r.
Qed.

(* causal hard attention on two tokens: the last token looks at itself or at the first one *)
Definition look (self : bool) : 'M[R]_2 := attend (fun i => if self then i else 0).

Lemma look_causal self (i j : 'I_2) : (i < j)%N -> look self i j = 0.
Proof.
by rewrite mxE; case: self; case: eqP => // -> //=; rewrite ltnn.
Qed.

(* Along the word w every head of w looks at itself and all others look at the first token,
   which holds 0: the last token then sees the word w alone. *)
Definition isolate (w : seq 'I_H) (l : nat) (h : 'I_H) : 'M[R]_2 := look (h == nth h w l).

Lemma isolate_first w D (S : nat -> 'I_H -> 'M[R]_D) l (X : 'M[R]_(2, D)) :
  row 0 X = 0 -> row 0 (shared_net (isolate w) S l X) = 0.
Proof.
move=> X0; elim: l => //= l IH; rewrite raddf_sum big1 //= => h _.
by rewrite row_mul attend_mul if_same IH mul0mx.
Qed.

Lemma isolate_last w D (S : nat -> 'I_H -> 'M[R]_D) l (X : 'M[R]_(2, D)) :
  (l <= size w)%N -> row 0 X = 0 ->
  row ord_max (shared_net (isolate w) S l X) = row ord_max X *m wprod S 0 (take l w).
Proof.
move=> + X0; elim: l => [|l IH] lw /=; first by rewrite take0 mulmx1.
have x0 : 'I_H by case: (w) lw.
rewrite (take_nth x0) // wprod_rcons size_takel ?(ltnW lw) // mulmxA -IH 1?ltnW //.
rewrite raddf_sum (bigD1 (nth x0 w l)) //= big1 ?addr0 => [|h /negbTE ne].
  by rewrite row_mul attend_mul (set_nth_default x0) // eqxx.
by rewrite row_mul attend_mul (set_nth_default x0) // ne isolate_first // mul0mx.
Qed.

(* Two tokens and the causal matrices I, B separate all words. *)
Theorem spanning_lemma :
  (forall (P : nat -> 'I_H -> 'M[R]_2), (forall l h, exists self, P l h = look self) ->
   forall X : 'M[R]_(2, din), shared_net P V L (X *m E) *m U = shared_net P M L X) ->
  shared_matches L V M E U.
Proof.
move=> equal w; apply/row_matrixP => i.
pose X : 'M[R]_(2, din) := delta_mx ord_max i.
have X0 : row 0 X = 0 by apply/rowP => j; rewrite !mxE.
have X1 : row ord_max X = delta_mx 0 i by apply/rowP => j; rewrite !mxE eqxx.
have := congr1 (row ord_max) (equal (isolate w) (fun l h => ex_intro _ _ erefl) X).
rewrite row_mul !isolate_last ?size_tuple // ?row_mul ?X0 ?mul0mx // X1.
by rewrite take_oversize ?size_tuple // -!mulmxA -!rowE !mulmxA !row_mul.
Qed.

(* Hence, for every class of attention matrices that contains causal hard attention,
   equal outputs and the word equations say the same. *)
Theorem shared_emulatesP (C : forall n, 'M[R]_n -> Prop) : (forall self, C 2%N (look self)) ->
  shared_emulates C <-> shared_matches L V M E U.
Proof.
move=> Clook; split=> [em|match_w n P _ X]; last exact: shared_matching_emulates.
by apply: spanning_lemma => P Plook; apply: em => l h; have [self ->] := Plook l h.
Qed.

End Spanning.

(* The paper's class: row-stochastic matrices over an ordered ring *)
Section Stochastic.
Variable R : numDomainType.

Definition row_stochastic n (P : 'M[R]_n) : Prop :=
  (forall i j, 0 <= P i j) /\ (forall i, \sum_j P i j = 1).

Lemma attend_stochastic n (f : 'I_n -> 'I_n) : row_stochastic (attend R f).
Proof.
split=> [i j|i]; first by rewrite mxE ler0n.
rewrite (bigD1 (f i)) //= mxE eqxx big1 ?addr0 // => j /negbTE ne.
by rewrite mxE ne.
Qed.

Theorem spanning_lemma_stochastic (H din m L : nat)
    (V : nat -> 'I_H -> 'M[R]_m) (M : nat -> 'I_H -> 'M[R]_din)
    (E : 'M[R]_(din, m)) (U : 'M[R]_(m, din)) :
  shared_emulates L V M E U row_stochastic <-> shared_matches L V M E U.
Proof. by apply: shared_emulatesP => self; apply: attend_stochastic. Qed.

End Stochastic.
