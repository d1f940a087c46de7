(* The rank of R_all by an inverse modulo a prime, tested on random vectors.                               *)
(*                                                                                                         *)
(*   plant x          the tree whose entries are those of the list x, in the order of a walk               *)
(*   expand mask x    the entries of x at the places of the mask, zeros elsewhere                          *)
(*   passes           B (R_all x)_J = x modulo p for every x of a list, each expanded                      *)
(*   witness_sound    either rank R_all is at least the number n of places in the mask, over every field   *)
(*                    of characteristic 0, or at most one in p^k of the lists of k vectors modulo p passes *)
From Coq Require Import ZArith Lia.
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words MatchingSystem.
From UtfproofChecker Require Import Layers Integers.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* ------------------------------- what is executed ------------------------------------ *)
Section Program.
Variables (H d din m : nat) (S : nat -> nat -> head Z) (U : mat Z).
Fixpoint room (k : nat) : nat := if k is k'.+1 then (H * (d + d + room k'))%N else din.
Fixpoint plant (k off : nat) (x : vec Z) : tree Z := if k is k'.+1 then
  Node [seq (let o := (off + h * (d + d + room k'))%N in
    (take d (drop o x), take d (drop (o + d) x), plant k' (o + d + d) x)) | h <- iota 0 H]
  else Leaf (take din (drop off x)).
Definition pick (J : seq nat) (y : vec Z) : vec Z := [seq (if (j < m)%N then nth Z0 y j else Z0) | j <- J].
Fixpoint agree (p : Z) (s : vec Z) (B : mat Z) (x : vec Z) : bool := match B, x with
  | b :: B', a :: x' => Z.eqb (Z.modulo (dot Z0 Z.add Z.mul b s) p) (Z.modulo a p) && agree p s B' x'
  | _, [::] => true | [::], _ => false end.
Fixpoint expand (mask : seq bool) (x : vec Z) : vec Z := match mask with
  | b :: mask' => if b then nth Z0 x 0 :: expand mask' (behead x) else Z0 :: expand mask' x
  | [::] => [::] end.
Definition passes (L : nat) (p : Z) (mask : seq bool) (B : mat Z) (J : seq nat) (xs : seq (vec Z)) : bool :=
  let n := count id mask in
  let ys := applies Z0 Z.add Z.mul (fun a => Z.modulo a p) H d din m S U L 0
    [seq plant L 0 (expand mask x) | x <- xs] in
  all (fun xy => agree p (take n (pick J xy.2)) B xy.1) (zip xs ys).
End Program.

(* ------------------------------- what it means --------------------------------------- *)
(* a linear form that is not zero vanishes at one vector in #|F| *)
Lemma kernel_count (F : finFieldType) n (r : 'rV[F]_n) : r != 0 ->
  (#|[set x : 'cV[F]_n | r *m x == 0%R]| * #|F| <= #|F| ^ n)%N.
Proof.
case/rV0Pn => j rj; set K := [set x | _].
pose f (xa : 'cV[F]_n * F) := xa.1 + xa.2 *: delta_mx j 0.
have f_inj : {in setX K [set: F] &, injective f}.
  move=> [x a] [y b]; rewrite !inE /= !andbT => /eqP rx /eqP ry e.
  have fj (z : 'cV_n) c : r *m z = 0 -> (r *m f (z, c)) 0 0 = c * r 0 j.
    by move=> rz; rewrite /f /= mulmxDr rz add0r -scalemxAr -colE !mxE.
  have ab : a = b by apply: (mulIf rj); rewrite -(fj _ _ rx) -(fj _ _ ry) e.
  by move: e; rewrite ab /f /= => /addIr->.
by rewrite -(cardsT F) -cardsX -(card_in_imset f_inj) (leq_trans (max_card _)) // card_mx muln1 cardsT.
Qed.

Lemma leq_exp a b k : (a <= b -> a ^ k <= b ^ k)%N.
Proof. by case: k => // k ab; rewrite leq_exp2r. Qed.

Section Meaning.
Variables (H d din m : nat) (S : nat -> nat -> head Z) (U : mat Z).

Fixpoint place (k off : nat) (w : seq 'I_H) : nat := match k, w with
  | k'.+1, h :: w' => place k' (off + h * (d + d + room H d din k') + d + d) w'
  | _, _ => off end.
Lemma at_plant k off x (h : 'I_H) : at_head (plant H d din k.+1 off x) h =
  (let o := (off + h * (d + d + room H d din k))%N in
    (take d (drop o x), take d (drop (o + d) x), plant H d din k (o + d + d) x)).
Proof. by rewrite /= (nth_map 0%N) ?size_iota // nth_iota. Qed.
Lemma descend_plant k off x (w : seq 'I_H) : (size w <= k)%N ->
  descend (plant H d din k off x) w = plant H d din (k - size w) (place k off w) x.
Proof.
elim: k off w => [|k IH] off [|h w] // wk.
by rewrite -[LHS]/(descend (at_head (plant H d din k.+1 off x) h).2 w) at_plant IH.
Qed.

Section Column.
Variable L : nat.
Notation column := (column H d din L).
Definition pos (c : column) : nat := match c with
  | inl (w, j) => let o := (place L 0 (prew w) + lastw w * (d + d + room H d din (L - size (prew w)).-1))%N in
      match split j with inl j => o + j | inr j => o + d + j end
  | inr (w, j) => place L 0 w + j end%N.
Lemma nth_window T (b : T) n o x j : (j < n)%N -> nth b (take n (drop o x)) j = nth b x (o + j).
Proof. by move=> jn; rewrite nth_take // nth_drop. Qed.
Lemma zvec_plant (R : ringType) x c :
  zvec Z0 (inject R) H d din L (plant H d din L 0 x) (enum_rank c) 0 = inject R (nth Z0 x (pos c)).
Proof.
rewrite mxE enum_rankK; case: c => [[w j]|[w j]]; last first.
  by rewrite mxE descend_plant ?size_tuple // subnn /= nth_window ?ltn_ord.
have wL : (size (prew w) < L)%N by rewrite size_tuple.
rewrite /pos; case: (split j) => i; rewrite mxE descend_plant ?(ltnW wL) //;
  by rewrite -(prednK (n := L - size (prew w))) ?subn_gt0 // at_plant /= nth_window ?ltn_ord // prednK
    ?subn_gt0.
Qed.
End Column.

Section Sound.
Variables (L : nat) (p : Z) (mask : seq bool) (B : mat Z) (J : seq nat).
Hypothesis pp : primeb p.
Let q := Z.to_nat p.
Let M := count id mask.
Notation Fp := [finFieldType of 'F_q].
Notation hostR R := (host Z0 (inject R) H d m S).
Notation outR R := (out Z0 (inject R) din m U).
Notation hostI := (hostR [ringType of int]).
Notation outI := (outR [ringType of int]).

Lemma map_mof (R : ringType) a b (C : mat Z) :
  mof Z0 (inject R) a b C = map_mx intr (mof Z0 (inject [ringType of int]) a b C).
Proof. by apply/matrixP => i j; rewrite !mxE inject_intr. Qed.
Lemma map_hostR (R : ringType) : Rall L (hostR R) (outR R) = map_mx intr (Rall L hostI outI).
Proof.
have wp w l : wprod (values (hostR R)) l w = map_mx intr (wprod (values hostI) l w).
  by elim: w l => [|h w IH] l /=; rewrite ?map_mx1 // map_mxM IH /values /= map_mof.
rewrite /Rall (map_pack [rmorphism of intr]).
by apply: eq_pack => [l w h _|l w h _|w]; rewrite map_mxM -wp; congr (_ *m _); exact: map_mof.
Qed.

Let PJ (R : ringType) : 'M[R]_(M, m) := \matrix_(i, k) (k == nth m J i :> nat)%:R.
Fixpoint places (s : seq bool) : seq nat := if s is b :: s' then
  let r := [seq i.+1 | i <- places s'] in if b then 0%N :: r else r else [::].
Lemma size_places s : size (places s) = count id s.
Proof. by elim: s => [|[] s IH] //=; rewrite size_map IH. Qed.
Lemma nth_expand (R : ringType) s x j : inject R (nth Z0 (expand s x) j) =
  \sum_(i < count id s) (j == nth (size s) (places s) i)%:R * inject R (nth Z0 x i).
Proof.
have shift t (i : 'I_(count id t)) : nth (size t).+1 [seq i.+1 | i <- places t] i = (nth (size t) (places t) i).+1.
  by rewrite (nth_map (size t)) ?size_places.
elim: s x j => [|b s IH] x j; first by rewrite nth_nil big_ord0.
case: b => /=; last first.
  case: j => [|j] /=; first by rewrite big1 // => i _; rewrite shift mul0r.
  by rewrite IH; apply: eq_bigr => i _; rewrite shift eqSS.
rewrite add1n big_ord_recl /=; case: j => [|j] /=.
  by rewrite mul1r big1 ?addr0 // => i _; rewrite shift mul0r.
by rewrite mul0r add0r IH; apply: eq_bigr => i _; rewrite shift eqSS nth_behead.
Qed.
Let PL (R : ringType) : 'M[R]_(#|column H d din L|, M) :=
  \matrix_(c, i) (pos (enum_val c) == nth (size mask) (places mask) i)%:R.
Let G (R : ringType) : 'M[R]_M := mof Z0 (inject R) M M B *m PJ R *m Rall L (hostR R) (outR R) *m PL R.
Lemma map_G (R : ringType) : G R = map_mx intr (G [ringType of int]).
Proof.
rewrite /G map_hostR map_mof !map_mxM /=.
by congr (_ *m _ *m _ *m _); apply/matrixP => i j; rewrite !mxE; case: (_ == _ :> nat).
Qed.

Lemma full_rank (F : numFieldType) : G Fp = 1%:M -> (M <= \rank (Rall L (hostR F) (outR F)))%N.
Proof.
rewrite map_G => G1; have detG : \det (G [ringType of int]) != 0.
  apply/eqP => G0; have := oner_neq0 Fp.
  by rewrite -(det1 _ M) -G1 det_map_mx /= G0 rmorph0 eqxx.
have GF : G F \in unitmx by rewrite map_G unitmxE det_map_mx unitfE intr_eq0.
rewrite -{1}(mxrank_unit GF) /G; exact: leq_trans (mxrankM_maxl _ _) (mxrankM_maxr _ _).
Qed.

(* a vector modulo p as a list *)
Definition draw (x : 'cV[Fp]_M) : vec Z := [seq Z.of_nat (x i 0) | i <- enum 'I_M].
Lemma nth_draw x (i : 'I_M) : inject Fp (nth Z0 (draw x) i) = x i 0.
Proof. by rewrite (nth_map i) ?size_enum_ord // nth_ord_enum inject_nat natr_Zp. Qed.
Lemma agreeP s C x (i : nat) : agree p s C x -> (i < size x)%N ->
  inject Fp (dot Z0 Z.add Z.mul (nth [::] C i) s) = inject Fp (nth Z0 x i).
Proof.
elim: C x i => [|b C IH] [|a x] [|i] //= /andP[/Z.eqb_spec e ok] ix; last exact: IH.
by rewrite -(inject_mod pp (dot _ _ _ _ _)) e inject_mod.
Qed.

Lemma draw_passes (x : 'cV[Fp]_M) : (let y := apply Z0 Z.add Z.mul (fun a => Z.modulo a p) H d din m S U
  L 0 (plant H d din L 0 (expand mask (draw x))) in
  agree p (take M (pick m J y)) B (draw x)) -> (G Fp - 1%:M) *m x = 0.
Proof.
set y := apply _ _ _ _ _ _ _ _ _ _ _ _ _ => /= ok.
rewrite mulmxBl mul1mx; apply/eqP; rewrite subr_eq0; apply/eqP/colP => i.
have szx : size (draw x) = M by rewrite size_map size_enum_ord.
have := agreeP (i := i) ok; rewrite szx nth_draw => /(_ (ltn_ord i)) <-.
rewrite (dotE (inject0 _) (@injectD _) (@injectM _)).
have yE : cof Z0 (inject Fp) m y = Rall L (hostR Fp) (outR Fp) *m PL Fp *m x.
  rewrite /y (applyE (inject0 _) (@injectD _) (@injectM _) (inject_mod pp)) semE -mulmxA; congr (_ *m _).
  apply/colP => c; rewrite -[c in LHS]enum_valK zvec_plant nth_expand mxE.
  by apply: eq_bigr => i' _; rewrite mxE nth_draw.
rewrite /G -!mulmxA (mulmxA (Rall _ _ _)) -yE mulmxA -[in LHS]mulmxA mxE; apply: eq_bigr => k _.
rewrite !mxE; congr (_ * _).
case: (ltnP k (size J)) => kJ; last first.
  rewrite [in RHS]nth_default ?size_map // big1 // => k' _; rewrite !mxE (nth_default _ kJ).
  by rewrite (ltn_eqF (ltn_ord k')) mul0r.
rewrite (nth_map 0%N) // (set_nth_default m 0%N kJ); case: ifP => jm.
  rewrite (bigD1 (Ordinal jm)) //= !mxE eqxx mul1r big1 ?addr0 // => k' /negbTE ne.
  by rewrite !mxE -val_eqE /= in ne *; rewrite ne mul0r.
rewrite big1 // => k' _; rewrite !mxE; case: eqP => [e|_]; last by rewrite mul0r.
by move: jm; rewrite -e ltn_ord.
Qed.

Theorem witness_sound (k : nat) :
  (forall F : numFieldType, (M <= \rank (Rall L (hostR F) (outR F)))%N) \/
  (#|[set xs : {ffun 'I_k -> 'cV[Fp]_M} | passes H d din m S U L p mask B J [seq draw (xs i) | i <- enum
    'I_k]]| * q ^ k
    <= #|{ffun 'I_k -> 'cV[Fp]_M}|)%N.
Proof.
case: (eqVneq (G Fp) 1%:M) => [G1|]; [by left=> F; exact: full_rank | rewrite -subr_eq0 => D0; right].
have [i ri] : exists i, row i (G Fp - 1%:M) != 0.
  apply/existsP; apply: contraR D0; rewrite negb_exists => /forallP no; apply/eqP/row_matrixP => i.
  by rewrite row0; apply/eqP; rewrite -[_ == _]negbK no.
set r := row i _ in ri; pose K := [set x : 'cV[Fp]_M | r *m x == 0].
have cq : #|Fp| = q by rewrite card_Fp // q_prime.
have sub : (#|[set xs : {ffun 'I_k -> 'cV[Fp]_M} | passes H d din m S U L p mask B J [seq draw (xs i) | i <-
  enum 'I_k]]|
    <= #|K| ^ k)%N.
  rewrite -[k in (_ ^ k)%N](card_ord k) -card_ffun_on; apply: subset_leq_card; apply/subsetP => xs.
  rewrite inE /passes appliesE -!map_comp zip_map all_map => /allP ok; apply/ffun_onP => a.
  rewrite inE /r -row_mul draw_passes ?row0 //.
  by apply: (ok a); rewrite -enumT mem_enum.
apply: leq_trans (leq_mul sub (leqnn _)) _; rewrite -expnMn card_ffun card_ord; apply: leq_exp.
by rewrite -[X in (_ * X)%N]cq (leq_trans (kernel_count ri)) // card_mx muln1.
Qed.
End Sound.
End Meaning.
