(* Tied targets of width d_in: a host that matches all of them although its R_all has a kernel, and one    *)
(* that does not.                                                                                          *)
(*                                                                                                         *)
(*   target vs        the heads of a tied target whose numbers are listed, and one number y for W_U = y 1  *)
(*   independent      vectors of which each has an entry to itself, at a column of R_all                   *)
(*   vanishes_at      W_all z = 0 at one target, for every z of a list                                     *)
(*   everywhere_or_rarely   W_all z = 0 for every tied target over every field of characteristic 0, or at most   *)
(*                    2 L + 1 in s of the points with coordinates 0 ... s - 1 say so                       *)
(*   solvable         W is E R for some E if it vanishes on the kernel of R                                *)
From Coq Require Import ZArith Lia.
From mathcomp Require Import all_ssreflect all_algebra.
From SsrMultinomials Require Import mpoly.
From Utfproof Require Import Transformer Words MatchingSystem Decision Generic SchwartzZippel Residual ResidualWords ResidualSystem.
From UtfproofChecker Require Import Layers Integers Streams Witness Hosts Arithmetic.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* --- what is executed --- *)
Section Program.
Variables (stream : bool) (H d n L : nat).
Definition heads_and_stream : nat := if stream then H.+1 else H.
(* where entry (i, j) of W_Q, W_K, W_V or the transpose of W_O of a head is listed (t from 0 to 3); y comes first *)
Definition listed_at (t h i j : nat) : nat := (((h * 4 + t) * n + i) * d + j).+1%N.
Definition numbers : nat := (H * 4 * n * d)%N.
Definition tensor (vs : vec Z) (t h : nat) : mat Z :=
  [seq [seq nth Z0 vs (listed_at t h i j) | j <- iota 0 d] | i <- iota 0 n].
Definition target (vs : vec Z) (l h : nat) : head Z :=
  Head (tensor vs 0 h) (tensor vs 1 h) (gauged d n (tensor vs 2 h) (tensor vs 3 h)).
Definition letter_heads (m : nat) (S : nat -> nat -> head Z) : nat -> nat -> head Z := if stream then silent_heads m S else S.
Definition scalar (y : Z) : mat Z := [seq [seq if i == j then y else Z0 | j <- iota 0 n] | i <- iota 0 n].
Definition vanishes_at (ts : seq (tree Z)) (vs : vec Z) : bool := all (all0 nzZ n)
  (applies Z0 Z.add Z.mul id heads_and_stream d n n (letter_heads n (target vs)) (scalar (nth Z0 vs 0)) L 0 ts).
Definition in_kernel (m : nat) (S : nat -> nat -> head Z) (U : mat Z) (ts : seq (tree Z)) : bool :=
  all (all0 nzZ m) (applies Z0 Z.add Z.mul id heads_and_stream d n m (letter_heads m S) U L 0 ts).

(* a head that is not the stream *)
Definition live (h : nat) : bool := ~~ stream || (0 < h)%N.
Variables (ps : seq nat) (zs : seq (vec Z)).
Definition spike (p : nat) : vec Z := rcons (nseq p Z0) (Zpos xH).
Definition independent : bool := let k := size zs in
  all (fun i => some nzZ heads_and_stream d n live L (plant heads_and_stream d n L 0 (spike (nth 0%N ps i)))
    && all (fun j => nzZ (nth Z0 (nth [::] zs j) (nth 0%N ps i)) == (i == j)) (iota 0 k)) (iota 0 k).
End Program.

(* --- linear algebra --- *)
Section Algebra.
Variable F : fieldType.
Lemma diagonal_rank n k (A : 'M[F]_(n, k)) (f : 'I_k -> 'I_n) : (forall i j, (A (f i) j != 0) = (i == j)) -> \rank A = k.
Proof.
move=> diag; apply/eqP; rewrite eqn_leq rank_leq_col /=.
pose P : 'M[F]_(k, n) := \matrix_(i, c) (c == f i)%:R.
have e : P *m A = diag_mx (\row_i A (f i) i).
  apply/matrixP => i j; rewrite !mxE (bigD1 (f i)) //= mxE eqxx mul1r big1 ?addr0 => [|c /negbTE ne].
    by case: (eqVneq i j) (diag i j) => [->|_ /eqP] //=; rewrite ?mulr1n // mulr0n.
  by rewrite mxE ne mul0r.
apply: leq_trans (mxrankM_maxr P A); rewrite e mxrank_unit // unitmxE det_diag unitfE prodf_seq_neq0.
by apply/allP => i _; rewrite mxE diag eqxx.
Qed.
Lemma solvable m n k a (R : 'M[F]_(m, n)) (W : 'M[F]_(a, n)) (Z : 'M[F]_(n, k)) :
  R *m Z = 0 -> \rank Z = k -> (n <= \rank R + k)%N -> W *m Z = 0 -> \rank R = (n - k)%N /\ exists E, E *m R = W.
Proof.
move=> RZ Zk nR WZ; have kn : (k <= n)%N by rewrite -Zk rank_leq_row.
have sub : (R <= kermx Z)%MS by apply/sub_kermxP.
have rk : \rank (kermx Z) = (n - k)%N by rewrite mxrank_ker Zk.
have e : \rank R = (n - k)%N.
  by apply/eqP; rewrite eqn_leq -{1}rk mxrankS //= leq_subLR addnC.
split=> //; have /submxP[E EW] : (W <= R)%MS; last by exists E.
have := (mxrank_leqif_eq sub).2; rewrite e rk eqxx => /esym/andP[_]; apply: submx_trans; exact/sub_kermxP.
Qed.
End Algebra.

(* --- identities in the entries of a target --- *)
Section Vanish.
Variables (G d n L N : nat) (T : forall R : ringType, (nat -> R) -> nat -> layer R G d n).
Hypothesis map_T : forall (R R' : ringType) (f : {rmorphism R -> R'}) v l h,
  [/\ lQ (T (f \o v) l) h = map_mx f (lQ (T v l) h), lK (T (f \o v) l) h = map_mx f (lK (T v l) h)
    & lV (T (f \o v) l) h = map_mx f (lV (T v l) h)].
Hypothesis eq_T : forall (R : ringType) v v' l h, (forall i, (i <= N)%N -> v i = v' i) ->
  [/\ lQ (@T R v l) h = lQ (@T R v' l) h, lK (@T R v l) h = lK (@T R v' l) h & lV (@T R v l) h = lV (@T R v' l) h].
Notation P := [ringType of {mpoly rat[N.+1]}].
Definition indeterminate (i : nat) : P := 'X_(inord i).
Hypothesis deg_T : forall l h, [/\ mx_deg_le (lQ (T indeterminate l) h) 1, mx_deg_le (lK (T indeterminate l) h) 1
  & mx_deg_le (lV (T indeterminate l) h) 2].
Definition all_columns (R : ringType) (v : nat -> R) := Rall L (T v) (v 0%N)%:M.
Notation zvec R := (zvec Z0 (inject R) G d n L).

Lemma map_all_columns (R R' : ringType) (f : {rmorphism R -> R'}) v : all_columns (f \o v) = map_mx f (all_columns v).
Proof.
have wp w l : wprod (values (T (f \o v))) l w = map_mx f (wprod (values (T v)) l w).
  by elim: w l => [|h w IH] l /=; rewrite ?map_mx1 // map_mxM IH /values; have [_ _ ->] := map_T f v l h.
rewrite /all_columns /Rall map_pack.
apply: eq_pack => [l w h _|l w h _|w]; rewrite map_mxM -wp; last by rewrite map_scalar_mx.
  by have [-> _ _] := map_T f v l h.
by have [_ -> _] := map_T f v l h.
Qed.
Lemma eq_all_columns (R : ringType) (v v' : nat -> R) : (forall i, (i <= N)%N -> v i = v' i) -> all_columns v = all_columns v'.
Proof. by move=> e; rewrite /all_columns (e 0%N) //; apply: eq_Rall => l h; apply: eq_T. Qed.
Lemma map_zvec (R R' : ringType) (f : {rmorphism R -> R'}) t : zvec R' t = map_mx f (zvec R t).
Proof.
have e a : inject R' a = f (inject R a) by rewrite inject_intr [in RHS]inject_intr rmorph_int.
apply/matrixP => c j; rewrite !mxE; case: (enum_val c) => [[w x]|[w x]]; last by rewrite !mxE e.
by case: (split x) => y; rewrite !mxE e.
Qed.
Lemma deg_all_columns : mx_deg_le (all_columns indeterminate) (2 * L).+1.
Proof.
have X1 i : deg_le (indeterminate i) 1 by rewrite /deg_le msizeX mdeg1.
have wp w l : mx_deg_le (wprod (values (T indeterminate)) l w) (2 * size w).
  elim: w l => [|h w IH] l /=; first exact: mx_deg_le1.
  by rewrite mulnS; apply: mx_deg_leM => //; have [_ _] := deg_T l h.
move=> i c; rewrite mxE; case: (enum_val c) => [[w j]|[w j]].
  have small (A : 'M_(n, d)) j' : mx_deg_le A 1 -> deg_le ((wprod (values (T indeterminate)) 0 (prew w) *m A) i j') (2 * L).+1.
    move=> A1; apply: deg_leW (mx_deg_leM (wp (prew w) 0%N) A1 i j').
    by rewrite addn1 ltnS leq_mul2l size_tuple /= ltnW.
  by have [Q1 K1 _] := deg_T (tag w) (lastw w); case: (split j) => j'; apply: small.
apply: deg_leW (mx_deg_leM (wp w 0%N) (l := 1) _ i j); first by rewrite addn1 size_tuple.
by move=> a b; rewrite mxE; case: (a == b); rewrite ?mulr1n ?mulr0n // /deg_le msize0.
Qed.

Variable ts : seq (tree Z).
Let value (R : ringType) (v : nat -> R) t := all_columns v *m zvec R t.
Lemma map_value (R R' : ringType) (f : {rmorphism R -> R'}) v t : value (f \o v) t = map_mx f (value v t).
Proof. by rewrite /value map_all_columns (map_zvec f) map_mxM. Qed.
Definition coordinate s (x : {ffun 'I_N.+1 -> 'I_s}) (i : nat) : rat := (x (inord i))%:R.
Theorem everywhere_or_rarely s :
  (forall (F : numFieldType) (v : nat -> F), all (fun t => all_columns v *m zvec F t == 0) ts) \/
  (#|[set x : {ffun 'I_N.+1 -> 'I_s} | all (fun t => all_columns (coordinate x) *m zvec [ringType of rat] t == 0%R) ts]| * s
    <= (2 * L).+1 * s ^ N.+1)%N.
Proof.
case: (boolP (all (fun t => value indeterminate t == 0) ts)) => [zero|].
  left=> F v; apply: sub_all zero => t /eqP e; pose f := [rmorphism of mmap (@ratr F) (fun i : 'I_N.+1 => v i)].
  rewrite (eq_all_columns (v' := f \o indeterminate)) => [|i iN]; last first.
    by rewrite /f /= /indeterminate mmapX mmap1U inordK.
  by apply/eqP; rewrite -[LHS]/(value (f \o indeterminate) t) map_value e map_mx0.
rewrite -has_predC => /(has_nthP (Leaf [::]))[k kts]; set t := nth _ ts k => /matrix0Pn[i [j pij]]; right; set p := value _ _ i j in pij.
have a_inj : injective (fun k : 'I_s => k%:R : rat) by move=> a b /eqP; rewrite eqr_nat => /eqP/ord_inj.
have degp : (msize p <= (2 * L).+2)%N.
  have : mx_deg_le (value indeterminate t) ((2 * L).+1 + 0) by apply: mx_deg_leM deg_all_columns _; rewrite (map_zvec [rmorphism of @mpolyC N.+1 [ringType of rat]]); exact: mx_deg_leC.
  by rewrite addn0 => /(_ i j).
apply: leq_trans (schwartz_zippel a_inj pij degp); rewrite leq_mul2r; apply/orP; right.
apply: subset_leq_card; apply/subsetP => x; rewrite !inE => /(all_nthP (Leaf [::]))/(_ k kts)/eqP e.
pose f := [rmorphism of meval (point (fun k : 'I_s => k%:R : rat) x)].
have -> : p.@[point (fun k : 'I_s => k%:R) x] = value (f \o indeterminate) t i j by rewrite map_value mxE.
have -> : value (f \o indeterminate) t = value (coordinate x) t.
  by rewrite /value (eq_all_columns (v' := coordinate x)) // => a aN; rewrite /f /= mevalXU.
by rewrite /value e mxE.
Qed.
End Vanish.

(* --- tied targets in their entries --- *)
Section Targets.
Variables (stream : bool) (H d n L : nat).
Notation G := (heads_and_stream stream H).
Notation N := (numbers H d n).
Definition voiced (R : ringType) m (S : nat -> layer R H d m) : nat -> layer R G d m :=
  match stream return nat -> layer R (heads_and_stream stream H) d m with true => silent S | false => S end.
Section Entries.
Variables (R : ringType) (v : nat -> R).
Definition tensor_of (t : nat) (h : 'I_H) : 'M[R]_(n, d) := \matrix_(i, j) v (listed_at d n t h i j).
Definition tied_layer (l : nat) : layer R H d n :=
  Layer (tensor_of 0) (tensor_of 1) (fun h => tensor_of 2 h *m (tensor_of 3 h)^T).
End Entries.
Definition tied_target (R : ringType) (v : nat -> R) := voiced (tied_layer v).

Lemma number_bound t h i j : (t < 4)%N -> (h < H)%N -> (i < n)%N -> (j < d)%N -> (listed_at d n t h i j <= N)%N.
Proof.
have mixed a b p q : (a < p)%N -> (b < q)%N -> (a * q + b < p * q)%N.
  by move=> ap bq; apply: (@leq_trans (a.+1 * q)); rewrite ?leq_mul2r ?ap ?orbT // mulSn addnC ltn_add2r.
by move=> t4 hH iN jd; apply: (mixed) => //; apply: (mixed) => //; apply: (mixed).
Qed.
Lemma map_voiced (R R' : ringType) (f : {rmorphism R -> R'}) m (S : nat -> layer R H d m) S' :
  (forall l h, [/\ lQ (S' l) h = map_mx f (lQ (S l) h), lK (S' l) h = map_mx f (lK (S l) h)
     & lV (S' l) h = map_mx f (lV (S l) h)]) ->
  forall l h, [/\ lQ (voiced S' l) h = map_mx f (lQ (voiced S l) h), lK (voiced S' l) h = map_mx f (lK (voiced S l) h)
     & lV (voiced S' l) h = map_mx f (lV (voiced S l) h)].
Proof.
move=> e; rewrite /voiced; case: stream => //= l h; case: (letter_of h) => [a|]; first exact: e.
by rewrite !raddf0 map_mx1.
Qed.
Lemma map_target (R R' : ringType) (f : {rmorphism R -> R'}) (v : nat -> R) l h :
  [/\ lQ (tied_target (f \o v) l) h = map_mx f (lQ (tied_target v l) h),
      lK (tied_target (f \o v) l) h = map_mx f (lK (tied_target v l) h)
    & lV (tied_target (f \o v) l) h = map_mx f (lV (tied_target v l) h)].
Proof.
apply: map_voiced => k a; have e t : tensor_of (f \o v) t a = map_mx f (tensor_of v t a) by apply/matrixP => i j; rewrite !mxE.
by rewrite /= !e map_mxM map_trmx.
Qed.
Lemma eq_target (R : ringType) (v v' : nat -> R) l h : (forall i, (i <= N)%N -> v i = v' i) ->
  [/\ lQ (tied_target v l) h = lQ (tied_target v' l) h, lK (tied_target v l) h = lK (tied_target v' l) h
    & lV (tied_target v l) h = lV (tied_target v' l) h].
Proof.
move=> e; have same t a : (t < 4)%N -> tensor_of v t a = tensor_of v' t a.
  by move=> t4; apply/matrixP => i j; rewrite !mxE e // number_bound.
rewrite /tied_target /voiced; move: h; case: stream => h /=; last by rewrite !same.
by case: (letter_of h) => [a|] //; rewrite !same.
Qed.
Lemma deg_target l h : [/\ mx_deg_le (lQ (tied_target (indeterminate N) l) h) 1,
  mx_deg_le (lK (tied_target (indeterminate N) l) h) 1 & mx_deg_le (lV (tied_target (indeterminate N) l) h) 2].
Proof.
have X1 t a : mx_deg_le (tensor_of (indeterminate N) t a) 1.
  by move=> i j; rewrite mxE /deg_le msizeX mdeg1.
have V2 a : mx_deg_le (tensor_of (indeterminate N) 2 a *m (tensor_of (indeterminate N) 3 a)^T) 2.
  by rewrite -[2%N]/(1 + 1)%N; apply: mx_deg_leM => // i j; rewrite mxE; apply: X1.
rewrite /tied_target /voiced; move: h; case: stream => h //=; case: (letter_of h) => [a|] //.
split=> i j; try by rewrite mxE /deg_le msize0.
by rewrite mxE; case: (i == j); rewrite /deg_le ?msize1 ?msize0.
Qed.

(* every tied target is the one at some point *)
Section Point.
Variables (R : ringType) (Q K V : 'I_H -> 'M[R]_(n, d)) (O : 'I_H -> 'M[R]_(d, n)) (y : R).
Definition entry_at (k : nat) : R := if k is k.+1 then
  let c := (k %/ d)%N in let r := (c %/ n)%N in
  if (insub (r %/ 4)%N : option 'I_H, insub (c %% n)%N : option 'I_n, insub (k %% d)%N : option 'I_d) is
    (Some h, Some i, Some j) then match (r %% 4)%N with 0 => Q h i j | 1 => K h i j | 2 => V h i j | _ => O h j i end
  else 0 else y.
Lemma entry_atE t (h : 'I_H) (i : 'I_n) (j : 'I_d) : (t < 4)%N -> entry_at (listed_at d n t h i j) =
  match t with 0 => Q h i j | 1 => K h i j | 2 => V h i j | _ => O h j i end.
Proof.
have parts q b c : (c < b)%N -> (((q * b + c) %/ b)%N = q) * (((q * b + c) %% b)%N = c).
  by move=> cb; rewrite divnMDl ?modnMDl ?divn_small ?modn_small ?addn0 //; case: (b) cb.
by move=> t4; rewrite /entry_at /listed_at !(parts _ d) // !(parts _ n) // !(parts _ 4%N) // !valK.
Qed.
Lemma tied_layer_at l h : [/\ lQ (tied_layer entry_at l) h = Q h, lK (tied_layer entry_at l) h = K h
  & lV (tied_layer entry_at l) h = V h *m O h].
Proof.
have e t (A : 'M_(n, d)) : (forall (i : 'I_n) (j : 'I_d), entry_at (listed_at d n t h i j) = A i j) -> tensor_of entry_at t h = A.
  by move=> eA; apply/matrixP => i j; rewrite mxE.
split; rewrite /= ?(e 0%N (Q h)) ?(e 1%N (K h)) ?(e 2%N (V h)) ?(e 3%N (O h)^T) ?trmxK // => i j;
  by rewrite ?mxE entry_atE.
Qed.
End Point.

(* the program's target *)
Section Listed.
Variables (F : fieldType) (vs : vec Z).
Notation at_F := (fun k => inject F (nth Z0 vs k)).
Lemma tensorE t (h : 'I_H) : mof Z0 (inject F) n d (tensor d n vs t h) = tensor_of at_F t h.
Proof. by apply/matrixP => i j; rewrite !mxE (nth_map 0%N) ?size_iota // (nth_map 0%N) ?size_iota // !nth_iota. Qed.
Lemma target_headsE l h : let S := host Z0 (inject F) G d n (letter_heads stream n (target d n vs)) in
  [/\ lQ (S l) h = lQ (tied_target at_F l) h, lK (S l) h = lK (tied_target at_F l) h & lV (S l) h = lV (tied_target at_F l) h].
Proof.
have V (a : 'I_H) : mof Z0 (inject F) n n (gauged d n (tensor d n vs 2 a) (tensor d n vs 3 a)) = tensor_of at_F 2 a *m (tensor_of at_F 3 a)^T.
  apply/matrixP => i j; rewrite mxE gaugedE ltn_ord mxE; apply: eq_bigr => k _.
  by rewrite -!tensorE !mxE.
rewrite /tied_target /voiced /letter_heads; move: h; case: stream => h /=; last by rewrite !tensorE V.
rewrite /letter_of; case: unliftP => [a ->|->] /=; first by rewrite !tensorE V.
have e c : mof Z0 (inject F) n c [::] = 0 by apply/matrixP => i j; rewrite !mxE !nth_nil.
split; rewrite ?e //; apply/matrixP => i j.
by rewrite !mxE (nth_map 0%N) ?size_iota // (nth_map 0%N) ?size_iota // !nth_iota //= addn0 inject_nat eq_sym.
Qed.
Lemma scalarE y : out Z0 (inject F) n n (scalar n y) = (inject F y)%:M.
Proof.
apply/matrixP => i j; rewrite !mxE (nth_map 0%N) ?size_iota // (nth_map 0%N) ?size_iota // !nth_iota //= !add0n.
by rewrite -val_eqE /=; case: eqP; rewrite ?mulr1n ?mulr0n.
Qed.
End Listed.

Definition point_of s (x : {ffun 'I_N.+1 -> 'I_s}) : vec Z := [seq Z.of_nat (x i) | i <- enum 'I_N.+1].
Theorem target_sound ts s :
  (forall (F : numFieldType) (Q K V : 'I_H -> 'M[F]_(n, d)) (O : 'I_H -> 'M[F]_(d, n)) (y : F),
    all (fun t => Rall L (voiced (layers (looped Q K V O))) y%:M *m zvec Z0 (inject F) G d n L t == 0) ts) \/
  (#|[set x : {ffun 'I_N.+1 -> 'I_s} | vanishes_at stream H d n L ts (point_of x)]| * s <= (2 * L).+1 * s ^ N.+1)%N.
Proof.
have [all_F|rare] := everywhere_or_rarely L map_target eq_target deg_target ts s; [left|right].
  move=> F Q K V O y; have := all_F F (entry_at Q K V O y); rewrite /all_columns.
  rewrite (@eq_Rall _ _ _ _ _ _ _ (voiced (layers (looped Q K V O)))) // => l h.
  rewrite /tied_target /voiced; move: h; case: stream => h /=; last exact: tied_layer_at.
  by case: (letter_of h) => [a|] //; exact: tied_layer_at.
apply: leq_trans rare; rewrite leq_mul2r; apply/orP; right; apply/subset_leq_card/subsetP => x; rewrite !inE.
rewrite /vanishes_at appliesE all_map; apply: sub_all => t /=.
rewrite (cof_all0 (inject0 _) (inject_nz [numFieldType of rat])) (applyE (inject0 _) (@injectD _) (@injectM _)) // semE scalarE.
have e k : (k <= N)%N -> inject [ringType of rat] (nth Z0 (point_of x) k) = coordinate x k.
  by move=> kN; rewrite (nth_map ord0) ?size_enum_ord ?ltnS // inject_nat /coordinate -{1}(@inordK N k) // nth_ord_enum.
rewrite (eq_Rall _ _ (target_headsE _ _)).
by have := eq_all_columns L eq_target e; rewrite /all_columns => ->.
Qed.
End Targets.

(* --- hosts --- *)
Section Host.
Variables (stream : bool) (H d n m L : nat) (heads : nat -> nat -> head Z) (U : mat Z) (F : numFieldType) (u : F).
Hypothesis u0 : u != 0.
Notation G := (heads_and_stream stream H).
Notation true_host := (scaled u (fun=> u) (host Z0 (inject F) H d m heads)).
Notation true_out := (u *: out Z0 (inject F) n m U).
Notation int_host := (host Z0 (inject F) G d m (letter_heads stream m heads)).
Notation plain t := (zvec Z0 (inject F) G d n L t).
(* each letter's factor *)
Definition factors (x : F) : 'I_G -> F := match stream return 'I_(heads_and_stream stream H) -> F with
  | true => fun a => if letter_of a is Some _ then x else 1 | false => fun=> x end.
Lemma factors_neq0 x a : x != 0 -> factors x a != 0.
Proof. by rewrite /factors; move: a; case: stream => a //= x0; case: (letter_of a); rewrite ?oner_neq0. Qed.
Lemma voiced_scaled k (x v : F) (S : nat -> layer F H d k) l a : let S' := voiced stream (scaled x (fun=> v) S) in
  let S'' := scaled x (factors v) (voiced stream S) in [/\ lQ (S' l) a = lQ (S'' l) a, lK (S' l) a = lK (S'' l) a & lV (S' l) a = lV (S'' l) a].
Proof. by rewrite /voiced /factors; move: a; case: stream => a //=; case: (letter_of a); rewrite ?scaler0 ?scale1r. Qed.
Lemma voiced_host l a : let S := voiced stream (host Z0 (inject F) H d m heads) in
  [/\ lQ (S l) a = lQ (int_host l) a, lK (S l) a = lK (int_host l) a & lV (S l) a = lV (int_host l) a].
Proof.
rewrite /voiced /letter_heads; move: a; case: stream => a //=; rewrite /letter_of; case: unliftP => [b ->|->] //=.
have e c : mof Z0 (inject F) m c [::] = 0 by apply/matrixP => i j; rewrite !mxE !nth_nil.
split; rewrite ?e //; apply/matrixP => i j.
by rewrite !mxE (nth_map 0%N) ?size_iota // (nth_map 0%N) ?size_iota // !nth_iota //= addn0 inject_nat eq_sym.
Qed.
Lemma eq_voiced k (S S' : nat -> layer F H d k) :
  (forall l h, [/\ lQ (S l) h = lQ (S' l) h, lK (S l) h = lK (S' l) h & lV (S l) h = lV (S' l) h]) ->
  forall l a, [/\ lQ (voiced stream S l) a = lQ (voiced stream S' l) a, lK (voiced stream S l) a = lK (voiced stream S' l) a
    & lV (voiced stream S l) a = lV (voiced stream S' l) a].
Proof. by move=> e; rewrite /voiced; case: stream => // l a; rewrite /=; case: (letter_of a) => [h|] //; exact: e. Qed.
Let D := diag_mx (inverse_degrees d n L u (factors u)).
Lemma host_columns : Rall L (voiced stream true_host) true_out *m D = Rall L int_host (out Z0 (inject F) n m U).
Proof.
rewrite (eq_Rall _ _ (voiced_scaled u u _)) Rall_unscaled //; last by move=> a; exact: factors_neq0.
exact: eq_Rall voiced_host.
Qed.
Lemma target_columns Q K V O : Rall L (voiced stream (layers (looped Q K V O))) 1%:M *m D =
  Rall L (voiced stream (layers (looped (fun h => u^-1 *: Q h) (fun h => u^-1 *: K h) (fun h => u^-1 *: V h) O))) (u^-1)%:M.
Proof.
set T' := layers (looped (fun h => u^-1 *: Q h) _ _ _); rewrite -(Rall_unscaled L (voiced stream T') (u^-1)%:M u0 (fun a => factors_neq0 a u0)); congr (_ *m _).
rewrite scale_scalar_mx divff //; apply: eq_Rall => l a; have [<- <- <-] := voiced_scaled u u T' l a; apply: eq_voiced => k h.
by rewrite /= !scalerA mulfV // !scale1r -scalemxAl scalerA mulfV // scale1r.
Qed.


(* R and W are the library's matrices, P takes their columns to those of words over all letters *)
Variables (c : nat) (P : 'M[F]_(c, #|column G d n L|)) (R : 'M[F]_(m, c)).
Hypothesis RP : R *m P = Rall L (voiced stream true_host) true_out.
Variables (zs : seq (vec Z)).
Notation trees := [seq plant G d n L 0 z | z <- zs].
Hypothesis kernel : in_kernel stream H d n L m heads U trees.
Let A : 'M[F]_(#|column G d n L|, size zs) := \matrix_(x, j) plain (plant G d n L 0 (nth [::] zs j)) x 0.
Lemma col_A (j : 'I_(size zs)) : col j A = plain (plant G d n L 0 (nth [::] zs j)).
Proof. by apply/colP => x; rewrite !mxE. Qed.
Lemma vanishing k (B : 'M[F]_(k, #|column G d n L|)) : all (fun t => B *m plain t == 0) trees -> B *m A = 0.
Proof.
move/all_nthP => zero; apply/matrixP => i j; have := zero (Leaf [::]) j; rewrite size_map ltn_ord (nth_map [::]) // => /(_ isT)/eqP.
by rewrite -col_A colE mulmxA -colE => /matrixP/(_ i 0); rewrite !mxE.
Qed.
Lemma vanishing_all k (B : 'M[F]_(k, #|column G d n L|)) : B *m A = 0 -> all (fun t => B *m plain t == 0) trees.
Proof.
move=> BA; apply/(all_nthP (Leaf [::])) => j; rewrite size_map => jz; rewrite (nth_map [::]) //; apply/eqP.
by rewrite -(col_A (Ordinal jz)) colE mulmxA BA mul0mx.
Qed.
Lemma kernel_ok : R *m (P *m D *m A) = 0.
Proof.
rewrite !mulmxA RP host_columns; apply: vanishing; move: kernel; rewrite /in_kernel appliesE !all_map; apply: sub_all => z /=.
by rewrite (cof_all0 (inject0 F) (inject_nz F)) (applyE (inject0 F) (@injectD F) (@injectM F)) // semE.
Qed.
(* queries and keys times a alone *)
Lemma reading_scaled (a : F) (T : nat -> layer F H d n) (B : 'M_n) : a != 0 ->
  Rall L (voiced stream (scaled a (fun=> 1) T)) (a *: B) = a *: Rall L (voiced stream T) B.
Proof.
move=> a0; rewrite (eq_Rall _ _ (voiced_scaled a 1 T)).
rewrite -(Rall_unscaled L (voiced stream T) B a0 (fun x => factors_neq0 x (oner_neq0 _))).
apply/matrixP => i x; rewrite mul_mx_diag !mxE mulrCA -[LHS]mulr1; congr (_ * _).
have one w : \prod_(h <- w) factors 1 h = 1 :> F.
  by rewrite big1 // => h _; rewrite /factors; move: h; case: stream => h //; case: (letter_of h).
by case: (enum_val x) => [[w j]|[w j]]; rewrite one mulr1 divff.
Qed.
Theorem refuted_sound vs (a b : Z) : u = inject F a / inject F b -> nth Z0 vs 0 = b ->
  ~~ vanishes_at stream H d n L trees vs -> exists Q K V O, forall W (E : 'M_(n, m)),
    W *m P = Rall L (voiced stream (layers (looped Q K V O))) 1%:M -> E *m R <> W.
Proof.
move=> ub yb /negP nonzero; have a0 : inject F a != 0 by apply: contraNneq u0 => a0; rewrite ub a0 mul0r.
have b0 : inject F b != 0 by apply: contraNneq u0 => b0; rewrite ub b0 invr0 mulr0.
pose X t (h : 'I_H) : 'M[F]_(n, d) := tensor_of d n (fun k => inject F (nth Z0 vs k)) t h.
exists (fun h => u *: ((inject F a)^-1 *: X 0%N h)), (fun h => u *: ((inject F a)^-1 *: X 1%N h)), (fun h => u *: X 2%N h), (fun h => (X 3%N h)^T).
move=> W E WP ER; apply: nonzero; have : E *m (R *m (P *m D *m A)) = 0 by rewrite kernel_ok mulmx0.
rewrite !mulmxA ER WP target_columns => /vanishing_all.
rewrite /vanishes_at appliesE !all_map; apply: sub_all => z /eqP e /=.
rewrite (cof_all0 (inject0 F) (inject_nz F)) (applyE (inject0 F) (@injectD F) (@injectM F)) // semE scalarE.
rewrite (eq_Rall _ _ (@target_headsE stream H d n F vs)) yb.
set T := layers _ in e; have -> : (inject F b)%:M = inject F a *: (u^-1)%:M :> 'M[F]_n.
  by rewrite scale_scalar_mx ub invf_div mulrCA divff ?mulr1.
rewrite /tied_target (@eq_Rall _ _ _ _ _ _ _ (voiced stream (scaled (inject F a) (fun=> 1) T))); last first.
  by apply: eq_voiced => l h; rewrite /= !(scalerK u0) !(scalerKV a0) scale1r.
by rewrite reading_scaled // -scalemxAl e scaler0.
Qed.
Hypothesis to_own : forall x : column G d n L, counted (live stream) x ->
  exists y, forall z : 'cV[F]_#|column G d n L|, (P *m z) y 0 = z (enum_rank x) 0.
Theorem kernel_matches ps : independent stream H d n L ps zs -> (c <= \rank R + size zs)%N ->
  \rank R = (c - size zs)%N /\ forall W Q K V O, W *m P = Rall L (voiced stream (layers (looped Q K V O))) 1%:M ->
    all (fun t => Rall L (voiced stream (layers (looped (fun h => u^-1 *: Q h) (fun h => u^-1 *: K h) (fun h => u^-1 *: V h) O)))
      (u^-1)%:M *m plain t == 0) trees -> exists E : 'M_(n, m), E *m R = W.
Proof.
move=> /allP ind full.
have rank_A : \rank (P *m D *m A) = size zs.
  have place (i : 'I_(size zs)) : exists y : 'I_c, forall j, ((P *m D *m A) y j != 0) = (i == j).
    have /andP[/(some_zvec (inject0 F) (inject_nz F))[x live_x + /allP diag]] := ind i ltac:(by rewrite mem_iota /=).
    rewrite zvec_plant; case: (eqVneq (pos x) (nth 0%N ps i)) => [px _|ne]; last first.
      by rewrite /spike nth_rcons size_nseq nth_nseq if_same; case: ifP; rewrite ?eqxx // (negbTE ne) /= eqxx.
    have [y Py] := to_own live_x; exists y => j.
    have -> : (P *m D *m A) y j = (P *m (D *m col j A)) y 0 by rewrite !mulmxA colE mulmxA -colE [RHS]mxE.
    rewrite Py mul_diag_mx mxE col_A zvec_plant px mulf_eq0 negb_or inverse_degrees_neq0 //=; last by move=> a; exact: factors_neq0.
    by rewrite -inject_nz (eqP (diag j _)) ?mem_iota //=.
  have [f fP] := fin_all_exists place; exact: (@diagonal_rank _ _ _ _ f).
split=> [|W Q K V O WP zero].
  by have [] := solvable (W := 0 : 'M_(n, c)) kernel_ok rank_A full (mul0mx _ _).
have WZ : W *m (P *m D *m A) = 0 by rewrite !mulmxA WP target_columns vanishing.
by have [] := solvable kernel_ok rank_A full WZ.
Qed.
End Host.
