(* Odd depth: a bilinear map in the middle layer, E and U both free.              *)
(*                                                                                *)
(* L = 2k+1. The first k letters are read by E's register and the last k by U's,  *)
(* as in TwoSided.v; the middle layer carries matrices B_h : s x t. A target is   *)
(* served as soon as its middle values factor, M^{k,h} = p B_h u for all h with   *)
(* one p : din x s and one u : t x din. At width 1 this says that the weight      *)
(* vector c of the middle layer is a value of the bilinear map                    *)
(* R^s x R^t -> R^H, (p, u) |-> (p B_h u)_h.                                      *)
(*                                                                                *)
(* middle_universal      shared attention, any ring and width: one host with      *)
(*                       m >= H^k max(s, t) serves every target whose middle      *)
(*                       values factor                                            *)
(* middle_onto_universal   width 1: if the map is onto, it serves every target    *)
(* star_universal        two stars: every target of any width din with            *)
(*                       m = H^k (ceil(H/2) + 1) din                              *)
(* path_universal        a path: every target of width din with invertible middle *)
(*                       values, m = H^k ceil((H+1)/2) din (for even H the        *)
(*                       stars' number); path_universal_scalar: at width 1 all    *)
(*                       targets with nonzero middle weights, so almost all       *)
(* polynomial_universal  multiplication of polynomials, s + t = H + 1;            *)
(*                       closed_field_universal: over an algebraically closed     *)
(*                       field all targets of width 1, m = H^k ceil((H+1)/2)      *)
(* graph_universal       what both use: an index map, that is a bipartite graph   *)
(* path_three_three      at (H, L) = (3, 3) almost all targets with m = 6 =       *)
(*                       ceil(27^(1/2))                                           *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Selection Spanning SharedBounds TwoSided.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

(* padding from s to q coordinates and back *)
Lemma mulmx_padK (R : ringType) a s q (A : 'M[R]_(a, s)) : (s <= q)%N ->
  A *m (pid_mx s : 'M_(s, q)) *m (pid_mx s : 'M_(q, s)) = A.
Proof. by move=> sq; rewrite -mulmxA pid_mx_id // pid_mx_1 mulmx1. Qed.

Section Middle.
Variables (R : ringType) (H k s t r : nat).
Notation q := (maxn s t).
Notation m := #|coordinate H k q r|.
Variable B : 'I_H -> 'M[R]_(s, t).

(* B_h between the registers of zeros *)
Definition middle (h : 'I_H) : 'M[R]_m :=
  (block R k q r (nseq k (zero h)))^T *m (pid_mx s *m B h *m pid_mx t) *m block R k q r (nseq k (zero h)).

Definition middle_host (l : nat) : 'I_H -> 'M[R]_m :=
  if l == k then middle else two_halves k (compare R k q r) (write R k q r) l.

Lemma wprod_middle_host (v w : seq 'I_H) h : size v = k ->
  wprod middle_host 0 (v ++ h :: w) =
  wprod (fun=> compare R k q r) 0 v *m middle h *m wprod (fun=> write R k q r) k.+1 w.
Proof.
move=> vk; rewrite wprod_cat wprod_cons add0n vk -mulmxA; congr (_ *m _); last congr (_ *m _).
- by apply: eq_wprod => l a; rewrite add0n vk /= /middle_host /two_halves => lk; rewrite ltn_eqF ?lk.
- by rewrite /middle_host eqxx.
apply: eq_wprod => l a /andP[kl _]; rewrite /middle_host /two_halves gtn_eqF //.
by rewrite ltnNge (ltnW kl).
Qed.

Lemma middle_serves din (M : nat -> 'I_H -> 'M[R]_din) (p : 'M[R]_(din, s)) (u : 'M[R]_(t, din)) :
  (forall h, p *m B h *m u = M k h) ->
  exists E U, shared_matches k.*2.+1 middle_host M E U.
Proof.
move=> factor.
pose A v : 'M_(din, q) := wprod M 0 v *m p *m pid_mx s.
pose C w : 'M_(q, din) := pid_mx t *m u *m wprod M k.+1 w.
exists (tape k r A), (cotape k r C) => w.
have k_lt : (k < size w)%N by rewrite size_tuple ltnS -addnn leq_addr.
have v_k : size (take k w) == k by rewrite size_takel // ltnW.
have w_k : size (drop k.+1 w) == k by rewrite size_drop size_tuple subSS -addnn addnK.
have [h ->] : exists h, tval w = take k w ++ h :: drop k.+1 w.
  have x0 : 'I_H by case: (tval w) k_lt.
  by exists (nth x0 w k); rewrite -drop_nth // cat_take_drop.
move: (take k w) (drop k.+1 w) v_k w_k => {w k_lt} v w v_k w_k.
pose z := map (@zero H) v; pose Z := block R k q r z.
have zE : nseq k (zero h) = z by rewrite /z (map_zero h) (eqP v_k).
have ZZ : Z *m Z^T = 1%:M.
  pose y := map_tuple (@zero H) (Tuple v_k).
  by have := block_orth R q r y y; rewrite eqxx.
have read_v : tape k r A *m wprod (fun=> compare R k q r) 0 v = A v *m Z.
  exact: (@tape_compare _ _ _ _ _ _ A 0 (Tuple v_k)).
have write_w : Z *m wprod (fun=> write R k q r) k.+1 w *m cotape k r C = C w.
  rewrite /Z /z (eq_map_zero (etrans (eqP v_k) (esym (eqP w_k)))).
  exact: (@write_cotape _ _ _ _ _ _ C k.+1 (Tuple w_k)).
rewrite wprod_middle_host ?(eqP v_k) // /middle zE -/Z !mulmxA read_v.
rewrite -(mulmxA _ Z Z^T) ZZ mulmx1 -(mulmxA _ Z) -(mulmxA _ (Z *m _)) write_w /A /C !mulmxA.
rewrite !mulmx_padK ?leq_maxl ?leq_maxr //.
by rewrite wprod_cat wprod_cons (eqP v_k) add0n -factor !mulmxA.
Qed.

End Middle.

(* Shared attention, L = 2k+1, any width: one host serves all targets whose middle values are
   p B_h u for some p and u. *)
Theorem middle_universal (R : ringType) (H k s t m : nat) (B : 'I_H -> 'M[R]_(s, t)) :
  (maxn s t * H ^ k <= m)%N ->
  exists V : nat -> 'I_H -> 'M[R]_m, forall din (M : nat -> 'I_H -> 'M[R]_din),
    (exists (p : 'M[R]_(din, s)) (u : 'M[R]_(t, din)), forall h, p *m B h *m u = M k h) ->
    exists E U, shared_matches k.*2.+1 V M E U.
Proof.
move=> /subnKC <-; rewrite -card_coordinate; exists (middle_host k (m - maxn s t * H ^ k) B).
by move=> din M [p [u factor]]; apply: middle_serves factor.
Qed.

(* Width 1: an onto bilinear map serves every target. *)
Corollary middle_onto_universal (R : ringType) (H k s t m : nat) (B : 'I_H -> 'M[R]_(s, t)) :
  (forall c : 'I_H -> R, exists (p : 'rV[R]_s) (u : 'cV[R]_t), forall h, p *m B h *m u = (c h)%:M) ->
  (maxn s t * H ^ k <= m)%N ->
  exists V : nat -> 'I_H -> 'M[R]_m, forall M : nat -> 'I_H -> 'M[R]_1,
    exists E U, shared_matches k.*2.+1 V M E U.
Proof.
move=> onto le_m; have [V VP] := middle_universal B le_m; exists V => M; apply: VP.
have [p [u pu]] := onto (fun h => M k h 0 0); exists p, u => h.
by rewrite pu [RHS]mx11_scalar.
Qed.

(* Index maps: a bipartite graph with H edges, edge h joining a h and b h. The host serves a target as
   soon as its middle values are products of matrices at the two ends of the edges. *)
Section Graph.
Variables (R : ringType) (H din s t : nat) (a : 'I_H -> 'I_s) (b : 'I_H -> 'I_t).

(* vertex i of n has its own din coordinates *)
Definition vertex n (i : 'I_n) : 'M[R]_(din, #|[finType of 'I_n * 'I_din]|) :=
  (sel R (fun j : 'I_din => (i, j) : [finType of 'I_n * 'I_din]))^T.

Lemma vertex_orth n (i j : 'I_n) : vertex i *m (vertex j)^T = (i == j)%:R%:M.
Proof.
rewrite trmxK mul_sel; apply/matrixP => x y; rewrite !mxE enum_rankK xpair_eqE eq_sym.
by rewrite [y == x]eq_sym; case: (i == j); case: (x == y).
Qed.

Definition edge (h : 'I_H) := (vertex (a h))^T *m vertex (b h).

Lemma edge_factor (P : 'I_s -> 'M[R]_din) (Q : 'I_t -> 'M[R]_din) h :
  (\sum_i P i *m vertex i) *m edge h *m (\sum_j (vertex j)^T *m Q j) = P (a h) *m Q (b h).
Proof.
rewrite /edge mulmxA; set p := (\sum_i P i *m vertex i) *m _.
have -> : p = P (a h).
  rewrite /p mulmx_suml (bigD1 (a h)) //= -mulmxA vertex_orth eqxx mulmx1 big1 ?addr0 // => i /negbTE ne.
  by rewrite -mulmxA vertex_orth ne raddf0 mulmx0.
rewrite -mulmxA mulmx_sumr (bigD1 (b h)) //= mulmxA vertex_orth eqxx mul1mx big1 ?addr0 // => j /negbTE ne.
by rewrite mulmxA vertex_orth eq_sym ne raddf0 mul0mx.
Qed.

Theorem graph_universal k m : (maxn s t * din * H ^ k <= m)%N ->
  exists V : nat -> 'I_H -> 'M[R]_m, forall M : nat -> 'I_H -> 'M[R]_din,
    (exists (P : 'I_s -> 'M[R]_din) (Q : 'I_t -> 'M[R]_din), forall h, P (a h) *m Q (b h) = M k h) ->
    exists E U, shared_matches k.*2.+1 V M E U.
Proof.
move=> le_m; have [|V VP] := @middle_universal R H k _ _ m edge.
  by rewrite !card_prod !card_ord -maxnMl.
exists V => M [P [Q PQ]]; apply: VP.
by exists (\sum_i P i *m vertex i), (\sum_j (vertex j)^T *m Q j) => h; rewrite edge_factor.
Qed.

End Graph.

(* Two stars: one centre holds 1 and sees the first half of the middle values, the other the rest.
   All targets of any width are served, m = din (ceil(H/2) + 1) H^k. *)
Theorem star_universal (R : ringType) (H din k m : nat) : ((uphalf H).+1 * din * H ^ k <= m)%N ->
  exists V : nat -> 'I_H -> 'M[R]_m, forall M : nat -> 'I_H -> 'M[R]_din,
    exists E U, shared_matches k.*2.+1 V M E U.
Proof.
set q := uphalf H => le_m.
pose a (h : 'I_H) : 'I_q.+1 := inord (h.+1 - q).
pose b (h : 'I_H) : 'I_q.+1 := if (h < q)%N then inord h.+1 else 0.
have [|V VP] := @graph_universal R H din _ _ a b k m; first by rewrite maxnn.
exists V => M; apply: VP.
pose value i := if insub i is Some h then M k h else 1%:M.
have valueE (h : 'I_H) : value h = M k h by rewrite /value valK.
exists (fun i : 'I_q.+1 => if i == 0%N :> nat then 1%:M else value (i + q).-1).
exists (fun j : 'I_q.+1 => if j == 0%N :> nat then 1%:M else value j.-1) => h.
have H_le : (H <= q + q)%N.
  by rewrite addnn /q uphalf_half doubleD -{1}(odd_double_half H) leq_add2r; case: odd.
rewrite /a /b; case: ltnP => hq.
  have -> : (h.+1 - q = 0)%N by apply/eqP; rewrite subn_eq0.
  by rewrite !inordK //= mul1mx valueE.
have lt_q : (h.+1 - q < q.+1)%N by rewrite ltnS leq_subLR (leq_trans (ltn_ord h)).
by rewrite mulmx1 inordK // subn_eq0 ltnNge hq /= subnK ?valueE // leqW.
Qed.

(* A path with H edges, width din: all targets with invertible middle values are served,
   m = din ceil((H+1)/2) H^k. *)
Theorem path_universal (R : comUnitRingType) (H din k m : nat) : (H./2.+1 * din * H ^ k <= m)%N ->
  exists V : nat -> 'I_H -> 'M[R]_m, forall M : nat -> 'I_H -> 'M[R]_din,
    (forall h, M k h \in unitmx) -> exists E U, shared_matches k.*2.+1 V M E U.
Proof.
move=> le_m.
pose a (h : 'I_H) : 'I_H./2.+1 := inord (uphalf h).
pose b (h : 'I_H) : 'I_H./2.+1 := inord h./2.
have [|V VP] := @graph_universal R H din _ _ a b k m; first by rewrite maxnn.
exists V => M M_unit; apply: VP.
pose value i := if insub i is Some h then M k h else 1%:M.
have valueE (h : 'I_H) : value h = M k h by rewrite /value valK.
have value_unit i : value i \in unitmx by rewrite /value; case: insubP => // _; apply: unitmx1.
(* the matrices along the path *)
pose x := fix x e := if e is e'.+1 then
  if odd e' then value e' *m invmx (x e') else invmx (x e') *m value e' else 1%:M.
have x_unit e : x e \in unitmx.
  by elim: e => [|e IH] /=; [apply: unitmx1 | case: odd; rewrite unitmx_mul unitmx_inv IH value_unit].
exists (fun i => x i.*2), (fun j => x j.*2.+1) => h; rewrite -valueE /a /b.
have h2 : (h./2 <= H./2)%N by rewrite half_leq // ltnW.
have h2' : (uphalf h <= H./2)%N := half_leq (ltn_ord h).
rewrite !inordK // uphalf_half -[in RHS](odd_double_half h).
case: (odd h); rewrite ?add1n ?add0n ?doubleS /= odd_double /=.
- by rewrite -mulmxA mulVmx ?mulmx1 // unitmx_mul unitmx_inv x_unit value_unit.
- by rewrite mulmxA mulmxV ?mul1mx.
Qed.

(* Width 1 over a field: every target whose middle weights are nonzero, that is almost every one. *)
Corollary path_universal_scalar (F : fieldType) (H k m : nat) : (H./2.+1 * H ^ k <= m)%N ->
  exists V : nat -> 'I_H -> 'M[F]_m, forall M : nat -> 'I_H -> 'M[F]_1,
    (forall h, M k h != 0) -> exists E U, shared_matches k.*2.+1 V M E U.
Proof.
move=> le_m; have [|V VP] := @path_universal F H 1 k m; first by rewrite muln1.
exists V => M M_neq0; apply: VP => h; rewrite unitmxE det_mx11 unitfE.
by apply: contraNneq (M_neq0 h) => M00; rewrite [M k h]mx11_scalar M00 raddf0.
Qed.

(* At (H, L) = (3, 3) almost all targets take m = 6, the least m with 27 <= m^2. *)
Corollary path_three_three (F : fieldType) :
  exists V : nat -> 'I_3 -> 'M[F]_6, forall M : nat -> 'I_3 -> 'M[F]_1,
    (forall h, M 1%N h != 0) -> exists E U, shared_matches 3 V M E U.
Proof. exact: (@path_universal_scalar F 3 1 6). Qed.

(* Polynomial multiplication as the bilinear map: s + t = H + 1 coefficients. It is onto as soon as every
   polynomial of degree < H is a product of two polynomials of degrees < s and < t. *)
Section Polynomials.
Variables (F : fieldType) (H s t : nat).

Definition convolution (h : 'I_H) : 'M[F]_(s, t) := \matrix_(i, j) (i + j == h)%N%:R.

Lemma poly_sum n (p : {poly F}) : (size p <= n)%N -> p = \sum_(i < n) p`_i *: 'X^i.
Proof.
move=> pn; rewrite -(poly_def n (fun i => p`_i)); apply/polyP => i; rewrite coef_poly.
by case: ltnP => // ni; rewrite nth_default // (leq_trans pn).
Qed.

Lemma convolution_mul (p q : {poly F}) h : (size p <= s)%N -> (size q <= t)%N ->
  (\row_i p`_i) *m convolution h *m (\col_j q`_j) = ((p * q)`_h)%:M.
Proof.
move=> /poly_sum {2}-> /poly_sum {2}->; apply/matrixP => x y; rewrite !ord1 !mxE mulr1n.
under eq_bigr => j _ do rewrite !mxE mulr_suml.
rewrite exchange_big mulr_suml coef_sum; apply: eq_bigr => i _.
rewrite mulr_sumr coef_sum; apply: eq_bigr => j _.
by rewrite !mxE -scalerAl -scalerAr -exprD !coefZ coefXn eq_sym mulrAC mulrA.
Qed.

Theorem polynomial_universal k m : (maxn s t * H ^ k <= m)%N ->
  exists V : nat -> 'I_H -> 'M[F]_m, forall M : nat -> 'I_H -> 'M[F]_1,
    (exists p q : {poly F}, [/\ (size p <= s)%N, (size q <= t)%N &
       forall h : 'I_H, (p * q)`_h = M k h 0 0]) ->
    exists E U, shared_matches k.*2.+1 V M E U.
Proof.
move=> le_m; have [V VP] := middle_universal convolution le_m; exists V => M [p [q [ps qt pq]]].
apply: VP; exists (\row_i p`_i), (\col_j q`_j) => h.
by rewrite convolution_mul // pq [RHS]mx11_scalar.
Qed.

End Polynomials.

(* Over an algebraically closed field every target of width 1 is served with the path's dimension. *)
Corollary closed_field_universal (F : closedFieldType) (H k m : nat) : (H./2.+1 * H ^ k <= m)%N ->
  exists V : nat -> 'I_H -> 'M[F]_m, forall M : nat -> 'I_H -> 'M[F]_1,
    exists E U, shared_matches k.*2.+1 V M E U.
Proof.
move=> le_m; have [|V VP] := @polynomial_universal F H (uphalf H) H./2.+1 k m.
  have le_half : (uphalf H <= H./2.+1)%N by rewrite uphalf_half -[X in (_ <= X)%N]add1n leq_add2r leq_b1.
  by rewrite (maxn_idPr le_half).
exists V => M; apply: VP; pose f := \poly_(h < H) (if insub h is Some h then M k h 0 0 else 0).
have fE (h : 'I_H) : f`_h = M k h 0 0 by rewrite coef_poly ltn_ord valK.
have [f0|f_neq0] := eqVneq f 0.
  by exists 0, 0; rewrite size_poly0; split=> // h; rewrite mul0r -f0 fE.
have [r fr] := closed_field_poly_normal f; pose n := (uphalf H).-1.
have H_gt0 : (0 < H)%N by rewrite (leq_trans _ (size_poly _ _ : size f <= H)%N) // size_poly_gt0.
have u_gt0 : (0 < uphalf H)%N by rewrite uphalf_gt0.
have r_lt : (size r < H)%N.
  rewrite -ltnS -(size_prod_XsubC r id) /= -(size_scale _ (_ : lead_coef f != 0)) ?lead_coef_eq0 // -fr.
  exact: size_poly.
exists (\prod_(z <- take n r) ('X - z%:P)), (lead_coef f *: \prod_(z <- drop n r) ('X - z%:P)); split=> [||h].
- by rewrite size_prod_XsubC -(prednK u_gt0) ltnS -/n size_take; case: ltnP.
- rewrite (leq_trans (size_scale_leq _ _)) // size_prod_XsubC size_drop ltnS leq_subLR /n.
  by rewrite -ltnS -addSn prednK // uphalf_half -addnA addnn odd_double_half.
by rewrite -scalerAr -big_cat cat_take_drop -fr fE.
Qed.
