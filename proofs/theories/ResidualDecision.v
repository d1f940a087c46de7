(* Which hosts are universal by matching for residual targets: a rank decides.   *)
(*                                                                            *)
(* "Universal" here means by matching: one embedding E serves every attention map at *)
(* once. Targets are untied. F is any field; H, L arbitrary; d, d_in > 0.          *)
(*                                                                            *)
(* Headline theorems                                                           *)
(*   res_decision         the residual matching equations are solvable for every  *)
(*                        untied target iff rank R_all = M_res                   *)
(*   res_refutation       if R_all z = 0 and z <> 0, one of M_res explicit {0,1}   *)
(*                        targets is matched by no E                            *)
(*   res_lower_bound      M_res <= m for every host, tied or not, that matches     *)
(*                        every untied residual target                         *)
(*   res_lower_bound_tight   and m = M_res suffices                             *)
(*   res_tied_not_emulates   for L >= 2, H >= 1: there is one untied residual      *)
(*                        target that no tied host of any width, with any U and E,  *)
(*                        emulates for all attention maps (res_tied_first_at: two   *)
(*                        causal row-stochastic ones suffice), over any ring      *)
(*   res_tied_negative    so no tied host is universal by matching for untied       *)
(*                        residual targets (res_tied_rank: rank R_all <> M_res)   *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Selection Residual ResidualWords ResidualSystem ResidualTree.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

Section Routed.
Variables (F : fieldType) (H d din L : nat).
Hypotheses (d0 : (0 < d)%N) (din0 : (0 < din)%N).
Notation letter := (option 'I_H).
Notation column := (res_column H d din L).

(* the target whose value matrices are e_j e_j^T along the nonzero letters of w, else zero *)
Definition route (w : seq letter) (j : 'I_din) (Q K : nat -> 'I_H -> 'M[F]_(din, d)) :=
  Transformer Q K (fun l h => (nth None w l == Some h)%:R *: delta_mx j (Ordinal d0))
                  (fun _ _ => delta_mx (Ordinal d0) j).

(* row j of M_v is e_j if v is a subword of w, else zero *)
Lemma row_route w j Q K l0 (v : seq letter) :
  row j (res_wprod (values (layers (route w j Q K))) l0 v) = (subword v (drop l0 w))%:R *: delta_mx 0 j.
Proof.
have next l : behead (drop l w) = drop l.+1 w by rewrite -drop1 drop_drop add1n.
elim: v l0 => [|[h|] v IH] l0 /=; first by rewrite scale1r row1.
  rewrite /values /= -scalemxAl mul_delta_mx -scalemxAl linearZ /= row_mul rowE mul_delta_mx -rowE IH.
  by rewrite scalerA -natrM mulnb next -nth0 nth_drop addn0 eq_sym.
by rewrite mul1mx IH next.
Qed.

(* a query (or key) matrix that reads only at layer l and head h, with the one entry (0, j) *)
Definition reads (l : nat) (h : 'I_H) (j : 'I_d) (l' : nat) (h' : 'I_H) : 'M[F]_(din, d) :=
  ((l' == l) && (h' == h))%:R *: delta_mx (Ordinal din0) j.

(* one {0,1} target for each column, and the row of W_all to look at *)
Definition routed (c : column) : transformer F H d din :=
  match c with
  | inl (x, j) => let: (w, h) := tagged x in
      match split j with
      | inl j => route w (Ordinal din0) (reads (tag x) h j) (fun _ _ => 0)
      | inr j => route w (Ordinal din0) (fun _ _ => 0) (reads (tag x) h j)
      end
  | inr (w, j) => route w j (fun _ _ => 0) (fun _ _ => 0)
  end.

Definition routed_row (c : column) : 'I_din := if c is inr (_, j) then j else Ordinal din0.

Lemma mulmx_row a b c (A : 'M[F]_(a, b)) (B : 'M_(b, c)) i j : (A *m B) i j = (row i A *m B) 0 j.
Proof. by rewrite -row_mul [RHS]mxE. Qed.

Lemma routed_01 c l h :
  [/\ is01 (WQ (routed c) l h), is01 (WK (routed c) l h),
      is01 (WV (routed c) l h) & is01 (WO (routed c) l h)].
Proof.
have b01 (b : bool) e f (i : 'I_e) (j : 'I_f) : is01 (b%:R *: delta_mx i j : 'M[F]_(e, f)).
  by move=> i' j'; rewrite !mxE -natrM mulnb; case: (_ && _); [right|left].
have z01 e f : is01 (0 : 'M[F]_(e, f)) by move=> i j; left; rewrite mxE.
have d01 e f (i : 'I_e) (j : 'I_f) : is01 (delta_mx i j : 'M[F]_(e, f)).
  by move=> i' j'; rewrite mxE; case: (_ && _); [right|left].
by case: c => [[[t [w h']] j]|[w j]] /=; first case: (split j) => j' /=;
  split; do [exact: z01|exact: d01|exact: b01].
Qed.

(* the routed targets separate: only z = 0 is orthogonal to all these rows *)
Theorem routed_separate (z : 'cV[F]_#|column|) :
  (forall c, (res_Wall L (layers (routed c)) *m z) (routed_row c) 0 = 0) -> z = 0.
Proof.
have rowV w j Q K (v : L.-tuple letter) j' :
    res_wprod (values (layers (route w j Q K))) 0 v j j' = ((subword v w) && (j' == j))%:R.
  have /rowP/(_ j') := row_route w j Q K 0 v.
  by rewrite drop0 !mxE eqxx /= -natrM mulnb.
move=> zW.
have zV w j : entry z (inr (w, j)) = 0.
  move: w; apply: subword_sum_eq0 => w.
  have := zW (inr (w, j)); rewrite res_pack_mul /= big1 ?add0r => [zc|x _]; last first.
    by rewrite !big1 ?addr0 // => j' _; rewrite mulmx0 mxE mul0r.
  rewrite -[RHS]zc big_mkcond; apply: eq_bigr => v _.
  rewrite (bigD1 j) //= rowV eqxx andbT [X in _ + X]big1 => [|j' /negbTE j'j]; last first.
    by rewrite rowV j'j andbF mul0r.
  by rewrite addr0; case: (subword v w); rewrite ?mul1r ?mul0r.
have rowR w Q K v l h j0 l' h' j' :
    (res_wprod (values (layers (route w (Ordinal din0) Q K))) 0 v *m reads l h j0 l' h') (Ordinal din0) j'
    = ((l' == l) && (h' == h))%:R * ((subword v w) && (j' == j0))%:R.
  rewrite mulmx_row row_route drop0 -scalemxAl -scalemxAr mul_delta_mx !mxE eqxx /=.
  by rewrite mulrCA; congr (_ * _); rewrite -natrM mulnb.
have zR (g : 'I_d -> 'I_(d + d)) l (w : l.-tuple letter) h (lL : (l < L)%N) j0 :
    (forall w : l.-tuple letter, \sum_(x : res_read H L) \sum_j
       ((tag x == l :> nat) && ((tagged x).2 == h))%:R
         * ((subword (tagged x).1 w) && (j == j0))%:R * entry z (inl (x, g j)) = 0) ->
    entry z (inl (mkread w h lL, g j0)) = 0.
  move=> sum0; move: w; apply: subword_sum_eq0 => w; rewrite -[RHS](sum0 w) big_mkcond.
  rewrite -(sum_read_at _ _ (fun x => if subword (tagged x).1 w then entry z (inl (x, g j0)) else 0)).
  rewrite big_mkcond; apply: eq_bigr => x _.
  rewrite (bigD1 j0) //= eqxx andbT [X in _ + X]big1 => [|j /negbTE jj0]; last first.
    by rewrite jj0 andbF mulr0 mul0r.
  rewrite addr0; case: (_ && _); last by rewrite !mul0r.
  by case: (subword _ w); rewrite !mul1r ?mul0r.
have z0 c : entry z c = 0.
  case: c => [[[[l lL] [w h]] j]|[w j]]; last exact: zV.
  case: (split_ordP j) => j0 ->; apply: (zR _ l w h lL j0) => {}w.
    have := zW (inl (mkread w h lL, lshift d j0)).
    rewrite res_pack_mul /= (unsplitK (inl j0)) [X in _ + X]big1 ?addr0 => [sum0|v _]; last first.
      by rewrite big1 // => j' _; rewrite zV mulr0.
    rewrite -[RHS]sum0; apply: eq_bigr => x _.
    rewrite [X in _ + X]big1 ?addr0 => [|j' _]; last by rewrite mulmx0 mxE mul0r.
    by apply: eq_bigr => j' _; rewrite -(rowR w (reads l h j0) (fun _ _ => 0)).
  have := zW (inl (mkread w h lL, rshift d j0)).
  rewrite res_pack_mul /= (unsplitK (inr j0)) [X in _ + X]big1 ?addr0 => [sum0|v _]; last first.
    by rewrite big1 // => j' _; rewrite zV mulr0.
  rewrite -[RHS]sum0; apply: eq_bigr => x _.
  rewrite [X in X + _]big1 ?add0r => [|j' _]; last by rewrite mulmx0 mxE mul0r.
  by apply: eq_bigr => j' _; rewrite -(rowR w (fun _ _ => 0) (reads l h j0)).
by apply/matrixP => c i; rewrite (ord1 i) [RHS]mxE -[c]enum_valK; apply: z0.
Qed.

End Routed.
Arguments routed F {H d din L} d0 din0 c.
Arguments routed_separate {F H d din L} d0 din0 {z}.

Section Decision.
Variables (F : fieldType) (H d din L m : nat).
Hypotheses (d0 : (0 < d)%N) (din0 : (0 < din)%N).
Variables (S : nat -> layer F H d m) (U : 'M[F]_(m, din)).

(* A null vector of R_all refutes: one of the routed {0,1} targets is matched by no E *)
Theorem res_refutation (z : 'cV[F]_#|res_column H d din L|) : res_Rall L S U *m z = 0 -> z != 0 ->
  exists c : res_column H d din L, forall E, ~ res_matches L S U (layers (routed F d0 din0 c)) E.
Proof.
move=> Rz z0.
have [/existsP[c Wz]|/existsPn Wz] := boolP [exists c : res_column H d din L,
    (res_Wall L (layers (routed F d0 din0 c)) *m z) (routed_row din0 c) 0 != 0].
  exists c => E /res_matchesP e; case/negP: Wz.
  by rewrite -e -mulmxA Rz mulmx0 mxE.
case/eqP: z0; apply: (routed_separate d0 din0) => c.
by apply/eqP; rewrite -[_ == 0]negbK Wz.
Qed.

(* The matching equations are solvable for every untied residual target iff R_all has full      *)
(* column rank                                                                             *)
Theorem res_decision :
  res_universal_by_matching L S U <-> \rank (res_Rall L S U) = res_matching_dimension H L d din.
Proof.
rewrite -card_res_column; split=> [univ|/eqP/row_fullP[B BR] T]; last first.
  by exists (res_Wall L (layers T) *m B); apply/res_matchesP; rewrite -mulmxA BR mulmx1.
apply/eqP; change (row_full (res_Rall L S U)); rewrite -cokermx_eq0.
apply/eqP/matrixP => i j; rewrite [RHS]mxE.
suff /matrixP/(_ i 0) : col j (cokermx (res_Rall L S U)) = 0 by rewrite !mxE.
apply: (routed_separate d0 din0) => c.
have [E /res_matchesP <-] := univ (routed F d0 din0 c).
by rewrite colE mulmxA -(mulmxA E) mulmx_coker mulmx0 mul0mx mxE.
Qed.

(* No host, tied or untied, of width below M_res matches every untied residual target *)
Theorem res_lower_bound : res_universal_by_matching L S U -> (res_matching_dimension H L d din <= m)%N.
Proof. by move/res_decision <-; apply: rank_leq_row. Qed.

End Decision.

(* ... and M_res suffices: M_res is the least width, by matching *)
Corollary res_lower_bound_tight (F : fieldType) (H d din L m : nat) : (0 < d)%N -> (0 < din)%N ->
  (exists (S : nat -> layer F H d m) (U : 'M[F]_(m, din)), res_universal_by_matching L S U)
  <-> (res_matching_dimension H L d din <= m)%N.
Proof.
move=> d0 din0; split=> [[S [U]]|mM]; first exact: res_lower_bound.
by have [S [U [_ _ _ univ _]]] := res_universal F mM; exists S, U.
Qed.

Section Tied.
Variables (R : ringType) (H d din L : nat).
Hypotheses (H0 : (0 < H)%N) (d0 : (0 < d)%N) (din0 : (0 < din)%N) (L2 : (1 < L)%N).

(* At layer t every token attends to the first token, at the other layers to itself: *)
(* row-stochastic and causal, whatever the queries and keys                          *)
Definition first_at (t : nat) : attention_map R H d :=
  fun l h n Q K => \matrix_(i, j) (if l == t then j == 0%N :> nat else j == i)%:R.

(* the target whose first layer's first head projects on e_0 and that has no other head *)
Definition first_head : transformer R H d din :=
  Transformer (fun _ _ => 0) (fun _ _ => 0)
    (fun l h => ((l == 0%N) && (h == Ordinal H0))%:R *: delta_mx (Ordinal din0) (Ordinal d0))
    (fun _ _ => delta_mx (Ordinal d0) (Ordinal din0)).

Lemma first_at_step t l D (lay : layer R H d D) n (X : 'M[R]_(n, D)) :
  step (first_at t) l lay X =
  (if l == t then \matrix_(i, j) (j == 0%N :> nat)%:R else 1%:M) *m X *m \sum_h lV lay h.
Proof.
rewrite mulmx_sumr; apply: eq_bigr => h _; congr (_ *m _ *m _).
by apply/matrixP => i j; rewrite /first_at !mxE; case: (l == t); rewrite mxE // eq_sym.
Qed.

Lemma first_head_values l :
  \sum_h lV (layers first_head l) h = (l == 0%N)%:R *: delta_mx (Ordinal din0) (Ordinal din0).
Proof.
rewrite (bigD1 (Ordinal H0)) //= -scalemxAl mul_delta_mx eqxx andbT big1 ?addr0 // => h /negbTE h0.
by rewrite h0 andbF scale0r mul0mx.
Qed.

(* a tied host cannot tell the layers 0 and 1 apart *)
Lemma tied_net m (lay : layer R H d m) n (X : 'M[R]_(n, m)) :
  res_net (first_at 0) (fun=> lay) L X = res_net (first_at 1) (fun=> lay) L X.
Proof.
case: L L2 => [|[|l]] // _; elim: l => [|l IH].
  by rewrite /= /res_step !first_at_step /= !mul1mx !mulmxDl mulmxDr !mulmxDl !mulmxA addrACA.
by rewrite [LHS]/= [RHS]/= -/(res_net _ _ l.+2 X) -/(res_net _ _ l.+2 X) IH /res_step !first_at_step.
Qed.

(* One untied residual target is emulated by no tied host, of any width, with any U and E:      *)
(* two fixed causal row-stochastic attention patterns, which ignore queries and keys, suffice     *)
Theorem res_tied_first_at m (lay : layer R H d m) (U : 'M[R]_(m, din)) (E : 'M[R]_(din, m)) :
  ~ (forall t n (X : 'M[R]_(n, din)), (t < 2)%N ->
       res_net (first_at t) (fun=> lay) L (X *m E) *m U = res_net (first_at t) (layers first_head) L X).
Proof.
move=> em; pose X : 'M[R]_(2, din) := delta_mx 1 (Ordinal din0).
have net1 t : (t < 2)%N -> res_net (first_at t) (layers first_head) L X = (t == 1%N)%:R *: X + X.
  case: L L2 => // l _ tl; elim: l => [|l IH].
    rewrite /= /res_step first_at_step first_head_values scale1r addrC; congr (_ + _).
    case: t tl => [|[|//]] _ /=; last by rewrite mul1mx scale1r mul_delta_mx.
    rewrite scale0r -mulmxA mul_delta_mx; apply/matrixP => i j; rewrite !mxE big1 // => i' _.
    by rewrite !mxE; case: i' => [[|[|//]]] i'2 /=; rewrite ?mulr0 ?mul0r.
  rewrite [LHS]/= -/(res_net _ _ l.+1 X) IH /res_step first_at_step first_head_values scale0r mulmx0 addr0.
  by [].
have := em 1%N _ X isT; rewrite -tied_net em // !net1 // scale0r scale1r => /addIr.
by move=> /matrixP/(_ 1 (Ordinal din0)); rewrite !mxE !eqxx => /esym/eqP; rewrite oner_eq0.
Qed.

(* in particular not for all attention maps *)
Corollary res_tied_not_emulates : exists T : transformer R H d din,
  forall m (lay : layer R H d m) (U : 'M[R]_(m, din)) E, ~ res_emulates L (fun=> lay) U (layers T) E.
Proof. by exists first_head => m lay U E em; apply: (@res_tied_first_at m lay U E) => t n X _; apply: em. Qed.

(* and no tied host is universal by matching for untied residual targets *)
Corollary res_tied_negative m (lay : layer R H d m) (U : 'M[R]_(m, din)) :
  ~ res_universal_by_matching L (fun=> lay) U.
Proof.
move=> univ; have [E /res_matching_emulates em] := univ first_head.
by apply: (@res_tied_first_at m lay U E) => t n X _; apply: em.
Qed.

End Tied.

(* in terms of the decision theorem: R_all of a tied host never has full column rank *)
Corollary res_tied_rank (F : fieldType) (H d din L m : nat) (lay : layer F H d m) (U : 'M[F]_(m, din)) :
  (0 < H)%N -> (0 < d)%N -> (0 < din)%N -> (1 < L)%N ->
  \rank (res_Rall L (fun=> lay) U) <> res_matching_dimension H L d din.
Proof.
move=> H0 d0 din0 L2 full; have univ : res_universal_by_matching L (fun=> lay) U by apply/res_decision.
exact: res_tied_negative univ.
Qed.

(* Input and output of different widths: targets of every width, with every embedding and unembedding. *)
Section ResWide.
Variables (F : fieldType) (H d din dout L m : nat) (S : nat -> layer F H d m) (U : 'M[F]_(m, dout)).

(* the right-hand side of a target with embedding WE and unembedding WU is WE times its R_all *)
Definition res_carries_all : Prop :=
  forall D (WE : 'M[F]_(din, D)) (T : transformer F H d D) (WU : 'M[F]_(D, dout)),
    exists E : 'M[F]_(din, m), E *m res_Rall L S U = WE *m res_Rall L (layers T) WU.


Theorem res_wide_decision : (0 < d)%N -> (0 < din)%N -> (0 < dout)%N ->
  res_carries_all <-> \rank (res_Rall L S U) = res_matching_dimension H L d dout.
Proof.
move=> d0 din0 dout0; rewrite -card_res_column; split=> [univ|/eqP/row_fullP[B BR] D WE T WU]; last first.
  by exists (WE *m res_Rall L (layers T) WU *m B); rewrite -mulmxA BR mulmx1.
apply/eqP; change (row_full (res_Rall L S U)); rewrite -cokermx_eq0.
apply/eqP/matrixP => i j; rewrite [RHS]mxE.
suff /matrixP/(_ i 0) : col j (cokermx (res_Rall L S U)) = 0 by rewrite !mxE.
apply: (routed_separate d0 dout0) => c.
have R1 : res_Rall L (layers (routed F d0 dout0 c)) 1%:M = res_Wall L (layers (routed F d0 dout0 c)).
  apply/matrixP => a b; rewrite !mxE; case: (enum_val b) => // -[w k]; by rewrite mulmx1.
have [E] := univ dout (delta_mx (Ordinal din0) (routed_row dout0 c)) (routed F d0 dout0 c) 1%:M.
rewrite R1 => /(congr1 (fun A => (A *m col j (cokermx (res_Rall L S U))) (Ordinal din0) 0)).
rewrite colE mulmxA -(mulmxA E) mulmx_coker mulmx0 mul0mx mxE -colE -mulmxA => /esym.
rewrite mxE (bigD1 (routed_row dout0 c)) //= [X in _ + X]big1 => [|k /negbTE ne].
  by rewrite addr0 mxE !eqxx mul1r.
by rewrite mxE eqxx ne mul0r.
Qed.
End ResWide.
