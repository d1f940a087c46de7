(* The decision theorem for universality by matching.                                                      *)
(* Here "universal" always means universal by matching (universal_by_matching): one fixed host, and for    *)
(* every target an E that solves the matching equations.                                                   *)
(*                                                                                                         *)
(*   isolating_Wall         every column of W_all is isolated by a target with entries 0 and 1: its        *)
(*                          W_all is zero but for a 1 in the first row of that column (L > 0)              *)
(*   matching_left_inverse  a fixed host is universal iff R_all has a left inverse (any ring)              *)
(*   decision_theorem       over a field: iff rank R_all = M = 2 d S + d_in H^L                            *)
(*   full_rank_any_rhs      at rank M every right-hand side is attained                                    *)
(*   refuting_target        a vector z with R_all z = 0 and a nonzero coordinate c: no E matches the       *)
(*                          isolating target of column c                                                   *)
(*   universal_or_refuted   one of the two certificates always exists                                      *)
(*   matching_lower_bound   a universal host has m >= M (any commutative ring)                             *)
(*   tied_targets_decision, tied_targets_lower_bound                                                       *)
(*                          the same for tied targets, when L <= d and L <= d_in                           *)
(*   wide_emulation         a universal host also carries every attention-only model of any width D,       *)
(*                          with embedding and unembedding, under every attention map                      *)
(*   wide_decision, wide_refutation                                                                        *)
(*                          the decision theorem for any d_in and d_out                                    *)
(*   refuting_distance, isolating_distance                                                                 *)
(*                          |E R_all - W_all| >= |W_all z| / |z| for every E                               *)
(*                                                                                                         *)
(* A host S is any function of the layer, so tied (looped) hosts are included: they are the constant ones. *)
(* Both d and d_in must be positive, for the routes need a coordinate. Nothing is assumed about H and L.   *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words MatchingSystem Emulation Selection.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Lemma split_lshift n (k : 'I_n) : split (lshift n k) = inl k.
Proof. exact: (unsplitK (inl k)). Qed.
Lemma split_rshift n (k : 'I_n) : split (rshift n k) = inr k.
Proof. exact: (unsplitK (inr k)). Qed.
Lemma inl_eqE (A B : eqType) (a b : A) : (inl a == inl b :> A + B) = (a == b).
Proof. by []. Qed.
Lemma inr_eqE (A B : eqType) (a b : B) : (inr a == inr b :> A + B) = (a == b).
Proof. by []. Qed.

Lemma word_prefixE H L (w' w : word H L) :
  (w' == w) = prefix (prew w') (prew w) && ((tag w' == tag w :> nat) && (lastw w' == lastw w)).
Proof.
apply/eqP/and3P => [->|[pr /eqP e /eqP e']]; first by rewrite prefix_refl !eqxx.
apply: letters_inj; rewrite !lettersE e'; congr rcons.
by move: pr; rewrite prefixE take_oversize ?size_tuple ?e // => /eqP.
Qed.

(* Isolating targets *)

Section Isolating.
Variables (R : ringType) (H d din L : nat).
Hypotheses (d0 : (0 < d)%N) (din0 : (0 < din)%N).
Let a0 : 'I_d := Ordinal d0.
Let i0 : 'I_din := Ordinal din0.

Definition entries01 (T : transformer R H d din) :=
  forall l h, [/\ is01 (WQ T l h), is01 (WK T l h), is01 (WV T l h) & is01 (WO T l h)].

(* the head h continues the word p at layer l *)
Definition follows (p : seq 'I_H) (l : nat) (h : 'I_H) : bool := ohead (drop l p) == Some h.

(* the target that follows p with value matrices e_0 e_0^T; the last layer writes to row j *)
Definition route (p : seq 'I_H) (j : 'I_din) (Q K : nat -> 'I_H -> 'M[R]_(din, d)) :=
  Transformer Q K (fun l h => (follows p l h)%:R *: delta_mx i0 a0)
                  (fun l _ => delta_mx a0 (if l.+1 == L then j else i0)).

(* queries or keys that only the last letter of w reads, at its layer, in coordinate j *)
Definition reads (w : word H L) (j : 'I_d) (l : nat) (h : 'I_H) : 'M[R]_(din, d) :=
  ((l == tag w) && (h == lastw w))%:R *: delta_mx i0 j.

Definition isolating (c : column H d din L) : transformer R H d din :=
  match c with
  | inl (w, j) => match split j with
      | inl j => route (prew w) i0 (reads w j) (fun _ _ => 0)
      | inr j => route (prew w) i0 (fun _ _ => 0) (reads w j) end
  | inr (v, j) => route v j (fun _ _ => 0) (fun _ _ => 0) end.

Lemma is01_scale_delta (b : bool) m n (i : 'I_m) (j : 'I_n) : is01 (b%:R *: delta_mx i j : 'M[R]_(m, n)).
Proof. by move=> i' j'; rewrite !mxE -natrM mulnb; case: (_ && _); [right | left]. Qed.

Lemma is01_0 m n : is01 (0 : 'M[R]_(m, n)).
Proof. by move=> i j; rewrite mxE; left. Qed.

Lemma is01_delta m n (i : 'I_m) (j : 'I_n) : is01 (delta_mx i j : 'M[R]_(m, n)).
Proof. by move=> i' j'; rewrite mxE; case: (_ && _); [right | left]. Qed.

Lemma isolating_01 c : entries01 (isolating c).
Proof.
case: c => [[w j]|[v j]] l h; rewrite /isolating /=; last by split;
  (exact: is01_0 || exact: is01_delta || exact: is01_scale_delta).
case: (split j) => j1; split; (exact: is01_0 || exact: is01_delta || exact: is01_scale_delta).
Qed.

(* the route along p: M_t is zero unless t is a prefix of p *)
Lemma wprod_route p j Q K l0 h t : (l0 + size (h :: t) <= L)%N ->
  wprod (values (layers (route p j Q K))) l0 (h :: t) =
  (prefix (h :: t) (drop l0 p))%:R *: delta_mx i0 (if l0 + size (h :: t) == L then j else i0)%N.
Proof.
have one l k : values (layers (route p j Q K)) l k
    = (follows p l k)%:R *: delta_mx i0 (if l.+1 == L then j else i0).
  by rewrite /values /= -scalemxAl mul_delta_mx.
have pre l k s : prefix (k :: s) (drop l p) = follows p l k && prefix s (drop l.+1 p).
  rewrite -[l.+1]add1n -drop_drop drop1 /follows; case: (drop l p) => [|k' r] //=.
  by rewrite eq_sym.
elim: t h l0 => [|k t IH] h l0 /= sz; rewrite pre one.
  by rewrite mulmx1 prefix0s andbT addn1.
have l0L : (l0.+1 == L) = false by apply/negbTE; rewrite neq_ltn (leq_trans _ sz) // !addnS !ltnS leq_addr.
have := IH k l0.+1; rewrite /= addSnnS => ->//.
rewrite l0L -scalemxAl; case: (prefix _ _); last by rewrite andbF !scale0r mulmx0 scaler0.
by rewrite andbT !scale1r mul_delta_mx.
Qed.

Lemma wprod_route_read (w w' : word H L) Q K j j1 :
  wprod (values (layers (route (prew w) j Q K))) 0 (prew w') *m reads w j1 (tag w') (lastw w')
  = (w' == w)%:R *: delta_mx i0 j1.
Proof.
rewrite word_prefixE /reads; case: (_ && (lastw _ == _)); last by rewrite andbF !scale0r mulmx0.
rewrite andbT scale1r; case e : (tval (prew w')) => [|h t]; first by rewrite mul1mx prefix0s scale1r.
have sz : (size (h :: t) < L)%N by rewrite -e size_tuple ltn_ord.
rewrite wprod_route ?add0n ?(ltnW sz) // drop0 -scalemxAl.
by rewrite (ltn_eqF sz) mul_delta_mx.
Qed.

Lemma wprod_route_out p j Q K (v : L.-tuple 'I_H) : (0 < L)%N -> (size p <= L)%N ->
  wprod (values (layers (route p j Q K))) 0 v = (val v == p)%:R *: delta_mx i0 j.
Proof.
move=> L0 pL; have -> : (val v == p) = prefix v p.
  apply/eqP/idP => [->|]; first exact: prefix_refl.
  by rewrite prefixE size_tuple take_oversize // => /eqP.
have := size_tuple v; case: (tval v) => [|h t] sz; first by rewrite -sz in L0.
by rewrite wprod_route ?add0n sz // drop0 eqxx.
Qed.

(* W_all of the isolating target of c is e_0 e_c^T *)
Theorem isolating_Wall c : (0 < L)%N -> Wall L (layers (isolating c)) = delta_mx i0 (enum_rank c).
Proof.
move=> L0; apply/matrixP => i c'; rewrite !mxE -[c' == _](inj_eq enum_val_inj) enum_rankK.
have out (w : word H L) (v : L.-tuple 'I_H) : (val v == val (prew w)) = false.
  by apply/eqP => /(congr1 size)/eqP; rewrite !size_tuple gtn_eqF.
case: c => [[w j]|[v j]]; rewrite /isolating.
- case: (split_ordP j) => j1 -> {j}; rewrite ?split_lshift ?split_rshift.
  + case: (enum_val c') => [[w' j']|[v' j']]; last first.
      by rewrite wprod_route_out // ?out ?scale0r ?mxE ?andbF // size_tuple ltnW.
    case: (split_ordP j') => j2 ->; rewrite ?split_lshift ?split_rshift inl_eqE xpair_eqE; last first.
      by rewrite /= mulmx0 mxE eq_rlshift !andbF.
    by rewrite wprod_route_read !mxE -natrM mulnb (inj_eq (@lshift_inj _ _)) andbCA.
  + case: (enum_val c') => [[w' j']|[v' j']]; last first.
      by rewrite wprod_route_out // ?out ?scale0r ?mxE ?andbF // size_tuple ltnW.
    case: (split_ordP j') => j2 ->; rewrite ?split_lshift ?split_rshift inl_eqE xpair_eqE.
      by rewrite /= mulmx0 mxE eq_lrshift !andbF.
    by rewrite wprod_route_read !mxE -natrM mulnb (inj_eq (@rshift_inj _ _)) andbCA.
- case: (enum_val c') => [[w' j']|[v' j']] /=.
    by case: (split j') => j2; rewrite mulmx0 mxE andbF.
  by rewrite wprod_route_out ?size_tuple // !mxE -natrM mulnb inr_eqE xpair_eqE andbCA.
Qed.

(* For L = 0 every W_all is the identity: the row that isolates c is then the row of c. *)
Definition isolating_row (c : column H d din L) : 'I_din :=
  if c is inr (_, j) then if L == 0%N then j else i0 else i0.

Lemma row_isolating_Wall c :
  row (isolating_row c) (Wall L (layers (isolating c))) = delta_mx 0 (enum_rank c).
Proof.
case: (posnP L) => [L0|L0]; last first.
  rewrite isolating_Wall // rowE mul_delta_mx_cond /isolating_row (gtn_eqF L0).
  by case: c => -[w j]; rewrite ?eqxx mulr1n.
case: c => [[w j]|[v j]]; first by have := ltn_ord (tag w); rewrite [X in (_ < X)%N]L0.
have -> : isolating_row (inr (v, j)) = j by rewrite /isolating_row L0.
apply/rowP => c'.
rewrite !mxE eqxx /= -[c' == _](inj_eq enum_val_inj) enum_rankK.
case: (enum_val c') => [[w' j']|[v' j']]; first by have := ltn_ord (tag w'); rewrite [X in (_ < X)%N]L0.
have nil (x : L.-tuple 'I_H) : val x = [::] by apply: size0nil; rewrite size_tuple L0.
have -> : v' = v by apply: val_inj; rewrite !nil.
by rewrite nil /= mxE inr_eqE xpair_eqE eqxx eq_sym.
Qed.

End Isolating.

(* The decision theorem *)

Section LeftInverse.
Variables (R : ringType) (H d din L m : nat) (S : nat -> layer R H d m) (U : 'M[R]_(m, din)).
Notation M := #|column H d din L|.

(* with a left inverse of R_all every right-hand side is attained *)
Theorem left_inverse_any_rhs (B : 'M[R]_(M, m)) : B *m Rall L S U = 1%:M ->
  forall a (W : 'M[R]_(a, M)), exists E : 'M[R]_(a, m), E *m Rall L S U = W.
Proof. by move=> e a W; exists (W *m B); rewrite -mulmxA e mulmx1. Qed.

(* a class of targets with an isolated row for every column forces a left inverse *)
Lemma isolated_left_inverse (P : (nat -> layer R H d din) -> Prop) :
  (forall c : column H d din L, exists (T : nat -> layer R H d din) (i : 'I_din),
     P T /\ row i (Wall L T) = delta_mx 0 (enum_rank c)) ->
  (forall T, P T -> exists E : 'M[R]_(din, m), matches L S U T E) ->
  exists B : 'M[R]_(M, m), B *m Rall L S U = 1%:M.
Proof.
move=> isolated univ.
have /fin_all_exists[x xP] (c : 'I_M) : exists x : 'rV[R]_m, x *m Rall L S U = delta_mx 0 c.
  have [T [i [PT rowT]]] := isolated (enum_val c).
  have [E /matchesP EP] := univ T PT.
  by exists (row i E); rewrite -row_mul EP rowT enum_valK.
exists (\matrix_c x c); apply/row_matrixP => c.
by rewrite row_mul rowK xP row1.
Qed.

Theorem matching_left_inverse : (0 < d)%N -> (0 < din)%N ->
  universal_by_matching L S U <-> exists B : 'M[R]_(M, m), B *m Rall L S U = 1%:M.
Proof.
move=> d0 din0; split=> [univ|[B e] T]; last first.
  by have [E EP] := left_inverse_any_rhs e (Wall L (layers T)); exists E; apply/matchesP.
apply: (@isolated_left_inverse (fun T => exists T', T = layers T')) => [c|_ [T ->]]; last exact: univ.
exists (layers (isolating R d0 din0 c)), (isolating_row din0 c).
by rewrite row_isolating_Wall; split=> //; exists (isolating R d0 din0 c).
Qed.

(* a vector in the kernel of R_all refutes matching, by the isolating target of each column in its support *)
Theorem refuting_target (d0 : (0 < d)%N) (din0 : (0 < din)%N) (c : column H d din L) (z : 'cV[R]_M) :
  Rall L S U *m z = 0 -> z (enum_rank c) 0 != 0 ->
  forall E : 'M[R]_(din, m), ~ matches L S U (layers (isolating R d0 din0 c)) E.
Proof.
move=> Rz zc E /matchesP e; case/eqP: zc.
have := congr1 (fun A => row (isolating_row din0 c) A *m z) e.
rewrite row_isolating_Wall -rowE row_mul -mulmxA Rz mulmx0.
by move=> /rowP/(_ 0); rewrite !mxE.
Qed.

End LeftInverse.

(* the lower bound, over every commutative ring *)
Theorem matching_lower_bound (R : comRingType) (H d din L m : nat)
    (S : nat -> layer R H d m) (U : 'M[R]_(m, din)) : (0 < d)%N -> (0 < din)%N ->
  universal_by_matching L S U -> (matching_dimension H L d din <= m)%N.
Proof.
move=> d0 din0 /(matching_left_inverse _ _ _ d0 din0)[B /mulmx1_min].
by rewrite card_column.
Qed.

Section Decision.
Variables (F : fieldType) (H d din L m : nat) (S : nat -> layer F H d m) (U : 'M[F]_(m, din)).

Theorem full_rank_any_rhs : \rank (Rall L S U) = matching_dimension H L d din ->
  forall a (W : 'M[F]_(a, #|column H d din L|)), exists E : 'M[F]_(a, m), E *m Rall L S U = W.
Proof.
rewrite -card_column => /eqP; rewrite -/(row_full _) => /row_fullP[B].
exact: left_inverse_any_rhs.
Qed.

(* A fixed host is universal by matching exactly when R_all has full column rank M. *)
Theorem decision_theorem : (0 < d)%N -> (0 < din)%N ->
  universal_by_matching L S U <-> \rank (Rall L S U) = matching_dimension H L d din.
Proof.
move=> d0 din0; rewrite -card_column.
split=> [/(matching_left_inverse _ _ _ d0 din0) fullR|/eqP fullR].
  by apply/eqP/row_fullP.
exact/(matching_left_inverse _ _ _ d0 din0)/row_fullP.
Qed.

(* One of the two certificates always exists. *)
Theorem universal_or_refuted (d0 : (0 < d)%N) (din0 : (0 < din)%N) : universal_by_matching L S U \/
  exists (c : column H d din L) (z : 'cV[F]_#|column H d din L|),
  [/\ Rall L S U *m z = 0, z (enum_rank c) 0 != 0 &
      forall E : 'M[F]_(din, m), ~ matches L S U (layers (isolating F d0 din0 c)) E].
Proof.
have [fullR|deficient] := boolP (row_full (Rall L S U)).
  by left; apply/(matching_left_inverse _ _ _ d0 din0)/row_fullP.
have /matrix0Pn[c [k nz]] : cokermx (Rall L S U) != 0.
  rewrite -mxrank_eq0 mxrank_coker subn_eq0 -ltnNge ltn_neqAle rank_leq_col andbT.
  exact: deficient.
right; exists (enum_val c), (col k (cokermx (Rall L S U))).
have Rz : Rall L S U *m col k (cokermx (Rall L S U)) = 0 by rewrite colE mulmxA mulmx_coker mul0mx.
have zc : col k (cokermx (Rall L S U)) (enum_rank (enum_val c)) 0 != 0 by rewrite enum_valK mxE.
by split=> //; apply: refuting_target zc.
Qed.

End Decision.

(* Tied (looped) hosts with untied targets: the same count, the same bound. *)
Corollary tied_host_decision (F : fieldType) (H d din L m : nat) (S : layer F H d m) (U : 'M[F]_(m, din)) :
  (0 < d)%N -> (0 < din)%N ->
  universal_by_matching L (fun=> S) U <-> \rank (Rall L (fun=> S) U) = matching_dimension H L d din.
Proof. exact: decision_theorem. Qed.

Corollary tied_host_lower_bound (R : comRingType) (H d din L m : nat)
    (S : layer R H d m) (U : 'M[R]_(m, din)) : (0 < d)%N -> (0 < din)%N ->
  universal_by_matching L (fun=> S) U -> (matching_dimension H L d din <= m)%N.
Proof. exact: matching_lower_bound. Qed.

(* Tied targets *)

Section TiedTargets.
Variables (R : ringType) (H d din L : nat).

(* a tied (looped) target: its parameters are constant functions of the layer *)
Definition looped (Q K V : 'I_H -> 'M[R]_(din, d)) (O : 'I_H -> 'M[R]_(d, din)) :=
  Transformer (fun=> Q) (fun=> K) (fun=> V) (fun=> O).

Definition universal_for_tied m (S : nat -> layer R H d m) (U : 'M[R]_(m, din)) : Prop :=
  forall Q K V O, exists E : 'M[R]_(din, m), matches L S U (layers (looped Q K V O)) E.

Hypotheses (din0 : (0 < din)%N) (Ld : (L <= d)%N) (Ldin : (L <= din)%N).
Let i0 : 'I_din := Ordinal din0.

(* the nodes of a path 0 -> 1 -> ... -> L.-1 -> j *)
Definition node (j : 'I_din) (t : nat) : 'I_din := if t == L then j else insubd i0 t.

Lemma node_val j t : (t < L)%N -> node j t = t :> nat.
Proof. by move=> tL; rewrite /node (ltn_eqF tL) val_insubd (leq_trans tL Ldin). Qed.

(* the tied target that walks along the path, its edges labelled by the word p *)
Definition walk (p : seq 'I_H) (j : 'I_din) (Q K : 'I_H -> 'M[R]_(din, d)) :=
  looped Q K (fun h => \matrix_(i, a) ((i == a :> nat) && follows p i h)%:R)
             (fun=> \matrix_(a, i) (i == node j a.+1)%:R).

Definition tied_reads (w : word H L) (a : 'I_d) (h : 'I_H) : 'M[R]_(din, d) :=
  (h == lastw w)%:R *: delta_mx (node i0 (tag w)) a.

Definition tied_isolating (c : column H d din L) : transformer R H d din :=
  match c with
  | inl (w, a) => match split a with
      | inl a => walk (prew w) i0 (tied_reads w a) (fun=> 0)
      | inr a => walk (prew w) i0 (fun=> 0) (tied_reads w a) end
  | inr (v, j) => walk v j (fun=> 0) (fun=> 0) end.

Definition tied_row (c : column H d din L) : 'I_din :=
  node (if c is inr (_, j) then j else i0) 0.

Lemma walk_step p j Q K l h : (l < L)%N -> delta_mx 0 (node j l) *m values (layers (walk p j Q K)) l h
  = (follows p l h)%:R *: delta_mx 0 (node j l.+1) :> 'rV_din.
Proof.
move=> lL; rewrite /values /= mulmxA -rowE; apply/rowP => k; rewrite !mxE.
rewrite (bigD1 (Ordinal (leq_trans lL Ld))) //= !mxE node_val // eqxx /= big1 ?addr0 => // a.
by rewrite !mxE node_val // -val_eqE /= eq_sym => /negbTE->; rewrite mul0r.
Qed.

Lemma walk_wprod p j Q K l s : (l + size s <= L)%N ->
  delta_mx 0 (node j l) *m wprod (values (layers (walk p j Q K))) l s
  = (prefix s (drop l p))%:R *: delta_mx 0 (node j (l + size s)) :> 'rV_din.
Proof.
elim: s l => [|h s IH] l /= sz; first by rewrite mulmx1 prefix0s scale1r addn0.
have lL : (l < L)%N by rewrite (leq_trans _ sz) // addnS ltnS leq_addr.
rewrite mulmxA walk_step // -scalemxAl IH ?addSnnS // scalerA -natrM mulnb; congr (_%:R *: _).
rewrite -[l.+1]add1n -drop_drop drop1 /follows; case: (drop l p) => [|k r] //=.
by rewrite eq_sym.
Qed.

Lemma walk_reads (w w' : word H L) Q K a :
  delta_mx 0 (node i0 0) *m (wprod (values (layers (walk (prew w) i0 Q K))) 0 (prew w')
    *m tied_reads w a (lastw w')) = (w' == w)%:R *: delta_mx 0 a :> 'rV_d.
Proof.
rewrite mulmxA walk_wprod ?add0n ?drop0; last by rewrite size_tuple ltnW.
rewrite size_tuple /tied_reads (word_prefixE w' w) -scalemxAl.
case: (lastw w' == lastw w); last by rewrite !andbF !scale0r mulmx0 scaler0.
rewrite andbT scale1r mul_delta_mx_cond -val_eqE /= !node_val //.
by case: (prefix _ _); case: (_ == _ :> nat); rewrite ?scale0r ?scaler0 ?scale1r.
Qed.

Lemma row_tied_Wall c :
  row (tied_row c) (Wall L (layers (tied_isolating c))) = delta_mx 0 (enum_rank c).
Proof.
rewrite rowE /Wall mul_pack; apply/rowP => c'.
rewrite mxE [RHS]mxE -[c' == _](inj_eq enum_val_inj) enum_rankK eqxx /=.
have out j (w : word H L) (v : L.-tuple 'I_H) Q K :
    delta_mx 0 (node j 0) *m wprod (values (layers (walk (prew w) j Q K))) 0 v = 0 :> 'rV_din.
  rewrite walk_wprod ?size_tuple // drop0.
  suff -> : prefix v (prew w) = false by rewrite scale0r.
  by apply/negP => /size_prefix; rewrite !size_tuple leqNgt ltn_ord.
case: c => [[w j]|[v j]]; rewrite /tied_isolating /tied_row.
- case: (split_ordP j) => j1 -> {j}; rewrite ?split_lshift ?split_rshift.
  + case: (enum_val c') => [[w' j']|[v' j']]; last by rewrite out mxE.
    case: (split_ordP j') => j2 ->; rewrite ?split_lshift ?split_rshift inl_eqE xpair_eqE; last first.
      by rewrite /= !mulmx0 mxE eq_rlshift !andbF.
    by rewrite walk_reads !mxE -natrM mulnb (inj_eq (@lshift_inj _ _)).
  + case: (enum_val c') => [[w' j']|[v' j']]; last by rewrite out mxE.
    case: (split_ordP j') => j2 ->; rewrite ?split_lshift ?split_rshift inl_eqE xpair_eqE.
      by rewrite /= !mulmx0 mxE eq_lrshift !andbF.
    by rewrite walk_reads !mxE -natrM mulnb (inj_eq (@rshift_inj _ _)).
- case: (enum_val c') => [[w' j']|[v' j']].
    by case: (split j') => j2; rewrite /= !mulmx0 mxE.
  rewrite walk_wprod ?size_tuple // drop0 prefixE size_tuple take_oversize ?size_tuple //.
  by rewrite add0n /node eqxx !mxE -natrM mulnb inr_eqE xpair_eqE eq_sym.
Qed.

End TiedTargets.

(* For L <= d and L <= d_in tied targets are as demanding as untied ones. *)
Theorem tied_targets_left_inverse (R : ringType) (H d din L m : nat)
    (S : nat -> layer R H d m) (U : 'M[R]_(m, din)) :
  (0 < din)%N -> (L <= d)%N -> (L <= din)%N -> universal_for_tied L S U ->
  exists B : 'M[R]_(#|column H d din L|, m), B *m Rall L S U = 1%:M.
Proof.
move=> din0 Ld Ldin univ.
apply: (@isolated_left_inverse _ _ _ _ _ _ _ _ (fun T => exists Q K V O, T = layers (looped Q K V O))).
  move=> c; exists (layers (tied_isolating R din0 c)), (tied_row din0 c).
  rewrite row_tied_Wall //; split=> //; rewrite /tied_isolating.
  by case: c => [[w a]|[v j]]; [case: (split a) => ?|]; do 4!eexists; reflexivity.
by move=> _ [Q [K [V [O ->]]]]; apply: univ.
Qed.

Theorem tied_targets_lower_bound (R : comRingType) (H d din L m : nat)
    (S : nat -> layer R H d m) (U : 'M[R]_(m, din)) :
  (0 < din)%N -> (L <= d)%N -> (L <= din)%N -> universal_for_tied L S U ->
  (matching_dimension H L d din <= m)%N.
Proof.
move=> din0 Ld Ldin /(tied_targets_left_inverse din0 Ld Ldin)[B /mulmx1_min].
by rewrite card_column.
Qed.

Theorem tied_targets_decision (F : fieldType) (H d din L m : nat)
    (S : nat -> layer F H d m) (U : 'M[F]_(m, din)) :
  (0 < din)%N -> (L <= d)%N -> (L <= din)%N ->
  universal_for_tied L S U <-> \rank (Rall L S U) = matching_dimension H L d din.
Proof.
move=> din0 Ld Ldin; split=> [univ|/full_rank_any_rhs any Q K V O].
  rewrite -card_column; apply/eqP/row_fullP; exact: tied_targets_left_inverse univ.
by have [E EP] := any _ (Wall L (layers (looped Q K V O))); exists E; apply/matchesP.
Qed.

(* Targets of any width *)

Section Wide.
Variables (R : ringType) (H d L m D dout : nat).
Variables (S : nat -> layer R H d m) (U : 'M[R]_(m, dout)).

(* the right-hand side of an attention-only model of width D: embedding WE, unembedding WU *)
Definition wide_Wall din (WE : 'M[R]_(din, D)) (T : nat -> layer R H d D) (WU : 'M[R]_(D, dout)) :
    'M[R]_(din, #|column H d dout L|) :=
  pack (fun l w h => WE *m (wprod (values T) 0 w *m lQ (T l) h))
       (fun l w h => WE *m (wprod (values T) 0 w *m lK (T l) h))
       (fun w : L.-tuple 'I_H => WE *m (wprod (values T) 0 w *m WU)).

Section Emulate.
Variables (din : nat) (WE : 'M[R]_(din, D)) (T : nat -> layer R H d D) (WU : 'M[R]_(D, dout)).
Variable E : 'M[R]_(din, m).
Hypothesis EP : E *m Rall L S U = wide_Wall WE T WU.

Lemma wide_same_read A l e (G : 'M[R]_(m, e)) (G' : 'M[R]_(D, e)) n (X : 'M[R]_(n, din)) :
  (forall l' h, (l' < l)%N -> att A S (X *m E) l' h = att A T (X *m WE) l' h) ->
  (forall w : l.-tuple 'I_H, E *m (wprod (values S) 0 w *m G) = WE *m (wprod (values T) 0 w *m G')) ->
  net A S l (X *m E) *m G = net A T l (X *m WE) *m G'.
Proof.
move=> eA eG; rewrite !multiunroll_embedded !mulmx_suml; apply: eq_bigr => w _.
rewrite -!mulmxA eG; congr (_ *m _); apply: eq_head_product => l' h.
by rewrite add0n size_tuple => /eA.
Qed.

Lemma wide_matching_emulates A n (X : 'M[R]_(n, din)) :
  net A S L (X *m E) *m U = net A T L (X *m WE) *m WU.
Proof.
move: EP; rewrite /Rall /wide_Wall mul_pack => /pack_inj[eQ eK eU].
apply: wide_same_read => [l h|]; last exact: eU.
elim/ltn_ind: l h => l IH h lL.
have before l' k : (l' < l)%N -> att A S (X *m E) l' k = att A T (X *m WE) l' k.
  by move=> l'l; apply/IH/ltn_trans/lL.
rewrite {1}/att (wide_same_read before (fun w => eQ l w h lL)).
by rewrite (wide_same_read before (fun w => eK l w h lL)).
Qed.

End Emulate.

(* A host that matches the targets of width d_out carries every attention-only model, whatever its
   width D, the number of its input coordinates and the rank of its value matrices. *)
Theorem wide_emulation : (0 < d)%N -> (0 < dout)%N -> universal_by_matching L S U ->
  forall din (WE : 'M[R]_(din, D)) (T : nat -> layer R H d D) (WU : 'M[R]_(D, dout)),
  exists E : 'M[R]_(din, m), forall (A : attention_map R H d) n (X : 'M[R]_(n, din)),
    net A S L (X *m E) *m U = net A T L (X *m WE) *m WU.
Proof.
move=> d0 dout0 /(matching_left_inverse _ _ _ d0 dout0)[B BR] din WE T WU.
have [E EP] := left_inverse_any_rhs BR (wide_Wall WE T WU).
by exists E => A n X; apply: wide_matching_emulates.
Qed.

End Wide.

(* Input and output of different widths: one fixed host carries every attention-only model, of every width,
   with every embedding and unembedding, if and only if R_all, with d_out columns for each word, has full
     rank. *)
Definition carries_all (R : ringType) (H d din dout L m : nat) (S : nat -> layer R H d m) (U : 'M[R]_(m,
  dout)) : Prop :=
  forall D (WE : 'M[R]_(din, D)) (T : transformer R H d D) (WU : 'M[R]_(D, dout)),
    exists E : 'M[R]_(din, m), E *m Rall L S U = wide_Wall L WE (layers T) WU.

Section WideDecision.
Variables (F : fieldType) (H d din dout L m : nat) (S : nat -> layer F H d m) (U : 'M[F]_(m, dout)).
Hypotheses (d0 : (0 < d)%N) (din0 : (0 < din)%N) (dout0 : (0 < dout)%N).

Theorem wide_refutation (z : 'cV_#|column H d dout L|) c : Rall L S U *m z = 0 -> z (enum_rank c) 0 != 0 ->
  exists D (WE : 'M[F]_(din, D)) (T : transformer F H d D) (WU : 'M[F]_(D, dout)), entries01 T /\
    forall E : 'M[F]_(din, m), E *m Rall L S U <> wide_Wall L WE (layers T) WU.
Proof.
move=> Rz zc; pose r := isolating_row dout0 c; pose WE := delta_mx (Ordinal din0) r : 'M[F]_(din, dout).
exists dout, WE, (isolating F d0 dout0 c), 1%:M; split=> [|E eE]; first exact: isolating_01.
have eW : wide_Wall L WE (layers (isolating F d0 dout0 c)) 1%:M = WE *m Wall L (layers (isolating F d0
  dout0 c)).
  by rewrite /Wall mul_pack; apply: eq_pack => // w; rewrite mulmx1.
have := congr1 (fun A => row (Ordinal din0) (A *m z)) eE.
rewrite eW -mulmxA Rz mulmx0 -mulmxA row0 rowE mulmxA mul_delta_mx mulmxA -rowE row_isolating_Wall -rowE.
by move=> /rowP/(_ 0); rewrite !mxE => zc0; rewrite -zc0 eqxx in zc.
Qed.

Theorem wide_decision : carries_all din L S U <-> \rank (Rall L S U) = matching_dimension H L d dout.
Proof.
split=> [all|full D WE T WU]; last exact: full_rank_any_rhs.
case: (universal_or_refuted L S U d0 dout0) => [/(decision_theorem _ _ _ d0 dout0)//|[c [z [Rz zc _]]]].
have [D [WE [T [WU [_ no]]]]] := wide_refutation Rz zc.
by have [E /no] := all D WE T WU.
Qed.
End WideDecision.

(* How far a refuted host stays from the target: |E R_all - W_all|_F >= |W_all z| / |z|. *)

Section Distance.
Variable F : realFieldType.

Lemma cauchy_schwarz (I : finType) (u v : I -> F) :
  (\sum_i u i * v i) ^+ 2 <= (\sum_i u i ^+ 2) * (\sum_i v i ^+ 2).
Proof.
set c := \sum_i u i * v i; set a := \sum_i u i ^+ 2; set b := \sum_i v i ^+ 2.
suff : 0 <= \sum_i \sum_j (u i * v j - u j * v i) ^+ 2.
  have -> : \sum_i \sum_j (u i * v j - u j * v i) ^+ 2 = (a * b - c ^+ 2) *+ 2.
    have -> : (a * b - c ^+ 2) *+ 2 = a * b + b * a - (c * c) *+ 2 by rewrite mulrnBl expr2 mulr2n (mulrC b).
    rewrite /a /b /c !big_distrlr /= -big_split /= -sumrMnl -sumrB; apply: eq_bigr => i _.
    rewrite -big_split -sumrMnl -sumrB; apply: eq_bigr => j _ /=.
    rewrite sqrrB !exprMn (mulrC (u j ^+ 2)) addrAC; congr (_ + _ - _ *+ 2).
    by rewrite mulrACA [RHS]mulrACA (mulrC (v j)).
  by rewrite pmulrn_lge0 // subr_ge0.
by apply: sumr_ge0 => i _; apply: sumr_ge0 => j _; apply: sqr_ge0.
Qed.

Definition sqnorm a b (A : 'M[F]_(a, b)) : F := \sum_i \sum_j A i j ^+ 2.

Lemma sqnorm_mul a b (A : 'M[F]_(a, b)) (z : 'cV[F]_b) : sqnorm (A *m z) <= sqnorm A * sqnorm z.
Proof.
rewrite /sqnorm mulr_suml; apply: ler_sum => i _; rewrite big_ord1 mxE.
apply: le_trans (cauchy_schwarz (A i) (fun j => z j 0)) _.
by under [X in _ <= _ * X]eq_bigr do rewrite big_ord1.
Qed.

Theorem refuting_distance (H d din L m : nat) (S : nat -> layer F H d m) (U : 'M[F]_(m, din))
    (T : nat -> layer F H d din) (z : 'cV[F]_#|column H d din L|) (E : 'M[F]_(din, m)) :
  Rall L S U *m z = 0 -> sqnorm (Wall L T *m z) <= sqnorm (E *m Rall L S U - Wall L T) * sqnorm z.
Proof.
move=> Rz; apply: le_trans (sqnorm_mul _ _); rewrite mulmxBl -mulmxA Rz mulmx0 sub0r.
suff -> : sqnorm (- (Wall L T *m z)) = sqnorm (Wall L T *m z) by [].
by apply: eq_bigr => i _; apply: eq_bigr => j _; rewrite mxE sqrrN.
Qed.

(* for an isolating target the bound is |z_c| / |z| > 0 *)
Corollary isolating_distance (H d din L m : nat) (S : nat -> layer F H d m) (U : 'M[F]_(m, din))
    (d0 : (0 < d)%N) (din0 : (0 < din)%N) (c : column H d din L)
    (z : 'cV[F]_#|column H d din L|) (E : 'M[F]_(din, m)) : (0 < L)%N -> Rall L S U *m z = 0 ->
  z (enum_rank c) 0 ^+ 2 <= sqnorm (E *m Rall L S U - Wall L (layers (isolating F d0 din0 c))) * sqnorm z.
Proof.
move=> L0 Rz; apply: le_trans (refuting_distance _ E Rz).
have e : (Wall L (layers (isolating F d0 din0 c)) *m z) (Ordinal din0) 0 = z (enum_rank c) 0.
  rewrite isolating_Wall // mxE (bigD1 (enum_rank c)) //= mxE !eqxx mul1r big1 ?addr0 // => k.
  by rewrite mxE => /negbTE->; rewrite andbF mul0r.
rewrite -e /sqnorm (bigD1 (Ordinal din0)) //= big_ord1 ler_addl.
by apply: sumr_ge0 => i _; apply: sumr_ge0 => j _; apply: sqr_ge0.
Qed.
End Distance.
