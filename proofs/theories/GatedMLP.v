(* Hosts with gated MLPs: m grows linearly with the depth, on inputs with a constant coordinate.        *)
(*                                                                                                      *)
(* A gate g with g(z) - g(-z) = z multiplies exactly: g(a) b - g(-a) b = a b. Silu, gelu and relu are   *)
(* such gates. So E can hold products of the target's weights as constants, and the MLPs multiply them  *)
(* in: layer after layer they compute X^l W_Q, X^l W_K and X^l W_V from the heads' results.             *)
(*                                                                                                      *)
(*   gated_block m K    one block: attention (a layer) and a gated MLP of K hidden units                *)
(*   gated_mlp g B Y    (g(Y G) * (Y N)) O, * entry by entry                                            *)
(*   gated_net g A B l Y   the stream after l blocks: y <- y + sum_h A^h y R_V^h, y <- y + MLP(y)       *)
(*   gated_att          the attention matrices of such a run                                            *)
(*   signs A            every entry is 0, 1 or -1                                                       *)
(*   gated_universal    one fixed host of H heads and L blocks, entries 0, 1 and -1, of every           *)
(*                      m >= 3 H^2 d^2 (L - 1) + 4 H d L + H d d_in + d_in: for every untied target and *)
(*                      every c an E makes attention and outputs equal to the target's, for every such  *)
(*                      gate, every attention map, every n, and every X with X c = 1                    *)
(*   relu_gate, sigmoid_gate   max(z, 0), and z s(z) where s(z) + s(-z) = 1, are such gates             *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Selection Emulation Residual Trie Decision.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Blocks.
Variables (R : ringType) (H d : nat).

Record gated_block (D K : nat) := GatedBlock {
  attention : layer R H d D;
  gate : 'M[R]_(D, K);
  linear : 'M[R]_(D, K);
  output : 'M[R]_(K, D) }.

Definition gated_mlp (g : R -> R) D K (B : gated_block D K) n (Y : 'M[R]_(n, D)) : 'M[R]_(n, D) :=
  (\matrix_(i, k) (g ((Y *m gate B) i k) * (Y *m linear B) i k)) *m output B.

Fixpoint gated_net (g : R -> R) (A : attention_map R H d) D K (B : nat -> gated_block D K) (L n : nat)
    (Y : 'M[R]_(n, D)) : 'M[R]_(n, D) :=
  if L is l.+1 then
    let Z := res_step A l (attention (B l)) (gated_net g A B l Y) in Z + gated_mlp g (B l) Z
  else Y.

Definition gated_att g (A : attention_map R H d) D K (B : nat -> gated_block D K) n (Y : 'M[R]_(n, D))
    (l : nat) (h : 'I_H) : 'M[R]_n :=
  A l h n (gated_net g A B l Y *m lQ (attention (B l)) h) (gated_net g A B l Y *m lK (attention (B l)) h).

Definition signs a b (A : 'M[R]_(a, b)) : Prop := forall i j, [\/ A i j = 0, A i j = 1 | A i j = -1].

Definition gate_law (g : R -> R) : Prop := forall z, g z - g (- z) = z.

End Blocks.

(* An MLP that multiplies: for every product p with on p it adds y_(a p) y_(b p) to y_(c p), or subtracts it
   if neg p *)

Section Products.
Variables (R : ringType) (H d : nat) (C P : finType) (a b c : P -> C) (on neg : pred P).
Variable S : layer R H d #|C|.

Notation hidden := [finType of P * bool].
Definition products : gated_block R H d #|C| #|hidden| := GatedBlock S
  (\matrix_(u < #|C|, k < #|hidden|) let: (p, s) := enum_val k in (enum_val u == a p)%:R * (-1) ^+ s)
  (\matrix_(u < #|C|, k < #|hidden|) let: (p, s) := enum_val k in (enum_val u == b p)%:R)
  (\matrix_(k < #|hidden|, u < #|C|) let: (p, s) := enum_val k in
     (on p && (enum_val u == c p))%:R * (-1) ^+ (neg p (+) s)).

Lemma pick_sum n (Y : 'M[R]_(n, #|C|)) t (x : C) (z : R) :
  \sum_u Y t u * ((enum_val u == x)%:R * z) = Y t (enum_rank x) * z.
Proof.
rewrite (bigD1 (enum_rank x)) //= enum_rankK eqxx mul1r big1 ?addr0 // => u.
by rewrite -(inj_eq enum_val_inj) enum_rankK => /negbTE ->; rewrite mul0r mulr0.
Qed.

Lemma productsE (g : R -> R) n (Y : 'M[R]_(n, #|C|)) t (u : C) : gate_law g ->
  gated_mlp g products Y t (enum_rank u)
  = \sum_(p | on p && (c p == u)) (-1) ^+ neg p * (Y t (enum_rank (a p)) * Y t (enum_rank (b p))).
Proof.
move=> law; rewrite mxE (reindex enum_rank) /=; last exact: onW_bij (enum_rank_bij _).
pose V := \matrix_(i, k) (g ((Y *m gate products) i k) * (Y *m linear products) i k).
pose F p s := V t (enum_rank (p, s)) * output products (enum_rank (p, s)) (enum_rank u).
rewrite (eq_bigr (fun q => F q.1 q.2)) => [|[p s] _ //]; rewrite -(pair_bigA _ F) /= [RHS]big_mkcond /=.
apply: eq_bigr => p _.
have unit s : V t (enum_rank (p, s)) = g (Y t (enum_rank (a p)) * (-1) ^+ s) * Y t (enum_rank (b p)).
  rewrite mxE; congr (g _ * _); rewrite mxE; under eq_bigr => v _ do rewrite mxE enum_rankK.
    exact: pick_sum.
  by under eq_bigr => v _ do rewrite -[_%:R]mulr1; rewrite pick_sum mulr1.
rewrite (bigD1 true) //= (bigD1 false) //= big1 => [|[]//].
rewrite /F !unit !mxE !enum_rankK /= (eq_sym u) expr0 expr1 addr0 !mulr1 mulrN1.
case: ifP => _; last by rewrite !mul0r !mulr0 addr0.
have e : Y t (enum_rank (a p)) * Y t (enum_rank (b p)) = g (Y t (enum_rank (a p))) * Y t (enum_rank (b p))
    - g (- Y t (enum_rank (a p))) * Y t (enum_rank (b p)) by rewrite -mulrBl law.
rewrite e mul1r; case: (neg p); rewrite /= ?expr0 ?expr1 ?mulr1 ?mulrN1 ?mul1r ?mulN1r ?opprB //.
by rewrite addrC.
Qed.

Lemma signs_bool (b' : bool) (s : bool) : [\/ b'%:R * (-1) ^+ s = 0 :> R, b'%:R * (-1) ^+ s = 1 :> R
   | b'%:R * (-1) ^+ s = -1 :> R].
Proof.
case: b'; last by constructor 1; rewrite mul0r.
by rewrite mul1r; case: s; [constructor 3; rewrite expr1|constructor 2].
Qed.

Lemma products_signs : [/\ signs (gate products), signs (linear products) & signs (output products)].
Proof.
split=> i j; rewrite mxE; case: (enum_val _) => p s; try exact: signs_bool.
by rewrite -[_%:R]mulr1; apply: (@signs_bool _ false).
Qed.

End Products.

(* The host. Its L = L'.+1 blocks share the coordinates                                           *)
(*   read (l, c, h, j)   query (c = 0), key (1) or value (2) of head h in layer l                 *)
(*   res (l, s)          the result of a head in layer l, before W_O; s = (h, j)                  *)
(*   const (y, s)        a constant: what s contributes to the target coordinate y                *)
(*   out r               the output                                                               *)
(* and k coordinates without use. The target coordinates y are the queries, keys and values of    *)
(* layers after the first, and the output.                                                        *)

Section Host.
Variables (R : ringType) (H d din L' k : nat).
Notation L := L'.+1.

Definition source := [finType of 'I_H * 'I_d].
Definition goal := [finType of 'I_L' * 'I_3 * 'I_H * 'I_d + 'I_din].
Definition gated_coord :=
  [finType of 'I_L * 'I_3 * 'I_H * 'I_d + 'I_L * source + goal * source + 'I_din + 'I_k].
Notation C := gated_coord.
Notation m := #|C|.

Lemma card_gated_coord : m = (3 * H ^ 2 * d ^ 2 * (L - 1) + 4 * H * d * L + H * d * din + din + k)%N.
Proof.
by rewrite !(card_sum, card_prod) !card_ord subn1 -!mulnn /=; ring.
Qed.

Definition layer_of (y : goal) : 'I_L := if y is inl (l, _, _, _) then widen_ord (leqnSn L') l else ord_max.
Definition place (y : goal) : C := match y with
  | inl (l, c, h, j) => inl (inl (inl (inl (lift ord0 l, c, h, j))))
  | inr r => inl (inr r) end.

Lemma place_inj : injective place.
Proof.
move=> [[[[l c] h] j]|r] [[[[l' c'] h'] j']|r'] //=; last by case=> ->.
by case=> /val_inj-> -> -> ->.
Qed.

(* Block l: the readers of its queries and keys, the values of its heads moved to their results, products *)

Definition reads (l c : nat) (h : 'I_H) (u : C) (j : nat) : bool :=
  if u is inl (inl (inl (inl (l', c', h', j')))) then
    [&& l' == l :> nat, c' == c :> nat, h' == h & j' == j :> nat]
  else false.

Definition moves (l : nat) (h : 'I_H) : rel C := fun u v =>
  if v is inl (inl (inl (inr (l', (h', j))))) then [&& l' == l :> nat, h' == h & reads l 2 h u j] else false.

Definition heads (l : nat) : layer R H d m :=
  Layer (fun h => reader R (reads l 0 h) d) (fun h => reader R (reads l 1 h) d)
        (fun h => rel_mx R (moves l h)).

Definition gated_host (l : nat) : gated_block R H d m #|[finType of goal * source * bool]| :=
  products (fun ys : goal * source => inl (inl (inl (inr (layer_of ys.1, ys.2)))) : C)
           (fun ys => inl (inl (inr ys))) (fun ys => place ys.1)
           (fun ys => layer_of ys.1 == l :> nat) pred0 (heads l).

Definition gated_out : 'M[R]_(m, din) := sel R (fun r => inl (inr r) : C).

(* The embedding of a target: first queries, keys and values, and the constants *)

Variables (T : transformer R H d din) (c : 'cV[R]_din).

Definition reading (l i : nat) : 'I_H -> 'M[R]_(din, d) :=
  match i with 0 => WQ T l | 1 => WK T l | _ => WV T l end.
Definition column_of (y : goal) : 'cV[R]_din :=
  match y with inl (l, i, h, j) => col j (reading l.+1 i h) | inr r => delta_mx r 0 end.
Definition constant (y : goal) (s : source) : R := (WO T (layer_of y) s.1 *m column_of y) s.2 0.

Definition gated_program : 'M[R]_(din, m) := program (fun a (u : C) => match u with
  | inl (inl (inl (inl (l, i, h, j)))) => if l == ord0 then reading 0 i h a j else 0
  | inl (inl (inr (y, s))) => c a 0 * constant y s
  | _ => 0 end).

Variables (g : R -> R) (A : attention_map R H d) (n : nat) (X : 'M[R]_(n, din)).
Hypotheses (law : gate_law g) (one : X *m c = const_mx 1).

Let stream l : 'M[R]_(n, din) := net A (layers T) l X.
Let result l h : 'M[R]_(n, d) := att A (layers T) X l h *m stream l *m WV T l h.

(* the host's stream before the attention (s = 0) or the MLP (s = 1) of block l *)
Definition state (l s : nat) : 'M[R]_(n, m) := program (fun t (u : C) => match u with
  | inl (inl (inl (inl (l', i, h, j)))) => if (l' <= l)%N then (stream l' *m reading l' i h) t j else 0
  | inl (inl (inl (inr (l', (h, j))))) => if (l' < l + s)%N then result l' h t j else 0
  | inl (inl (inr (y, s))) => constant y s
  | inl (inr r) => if l == L then stream L t r else 0
  | inr _ => 0 end).

Lemma state_start : X *m gated_program = state 0 0.
Proof.
apply/matrixP => t u; rewrite !mxE; under eq_bigr => a _ do rewrite mxE.
case: (enum_val u) => [[[[[[[l i] h] j]|[l [h j]]]|[y s]]|r]|e] /=; rewrite ?leqn0 ?addn0 ?ltn0;
  try by rewrite big1 // => a _; rewrite mulr0.
- rewrite -val_eqE /=; case: (l =P 0%N :> nat) => [->|_]; first by rewrite mxE.
  by rewrite big1 // => a _; rewrite mulr0.
- under eq_bigr => a _ do rewrite mulrA; rewrite -mulr_suml.
  by have := congr1 (fun M : 'cV_n => M t 0) one; rewrite !mxE => ->; rewrite mul1r.
Qed.

Lemma state_read l s (lL : (l < L)%N) (i : 'I_3) h :
  state l s *m reader R (reads l i h) d = stream l *m reading l i h.
Proof.
rewrite (@reader_sel_id _ _ _ _ (fun j => inl (inl (inl (inl (Ordinal lL, i, h, j)))) : C)) => [|u j].
  by rewrite program_sel; apply/matrixP => t j; rewrite mxE /= leqnn.
case: u => [[[[[[[l' i'] h'] j']|[l' [h' j']]]|[y s']]|r]|e] //=.
by rewrite !inl_eqE !xpair_eqE -!andbA.
Qed.

Lemma stateE l s t (u : C) : state l s t (enum_rank u) = match u with
  | inl (inl (inl (inl (l', i, h, j)))) => if (l' <= l)%N then (stream l' *m reading l' i h) t j else 0
  | inl (inl (inl (inr (l', (h, j))))) => if (l' < l + s)%N then result l' h t j else 0
  | inl (inl (inr (y, s))) => constant y s
  | inl (inr r) => if l == L then stream L t r else 0
  | inr _ => 0 end.
Proof. by rewrite mxE enum_rankK. Qed.

(* what the heads move *)
Lemma state_moves l (lL : (l < L)%N) h t (u : C) : (state l 0 *m rel_mx R (moves l h)) t (enum_rank u) =
  if u is inl (inl (inl (inr (l', (h', j))))) then
    if (l' == l :> nat) && (h' == h) then (stream l *m WV T l h) t j else 0
  else 0.
Proof.
rewrite mxE; under eq_bigr => v _ do rewrite [rel_mx _ _ _ _]mxE enum_rankK.
case: u => [[[[[[[l' i] h'] j]|[l' [h' j]]]|[y s]]|r]|e] /=; try by rewrite big1 // => v _; rewrite mulr0.
case: (boolP (_ && _)) => [/andP[/eqP el /eqP ->]|/negPf ne]; last first.
  by rewrite big1 // => v _; rewrite andbA ne mulr0.
have := state_read 0 lL (inord 2) h; rewrite inordK // => /matrixP/(_ t j); rewrite [RHS]/= => <-.
by rewrite mxE; apply: eq_bigr => v _; rewrite [reader _ _ _ _ _]mxE el !eqxx.
Qed.

Lemma state_att l h : (l < L)%N ->
  A l h (state l 0 *m lQ (heads l) h) (state l 0 *m lK (heads l) h) = att A (layers T) X l h.
Proof.
move=> lL; have := state_read 0 lL (inord 0) h; have := state_read 0 lL (inord 1) h.
by rewrite !inordK // /att /= => -> ->.
Qed.

Lemma attention_step l : (l < L)%N -> res_step A l (heads l) (state l 0) = state l 1.
Proof.
move=> lL; apply/matrixP => t v; rewrite -[v]enum_valK; move: (enum_val v) => {v} u.
have sum_heads : (step A l (heads l) (state l 0)) t (enum_rank u)
    = \sum_(h < H) \sum_t' att A (layers T) X l h t t' * (state l 0 *m rel_mx R (moves l h)) t' (enum_rank u).
  by rewrite summxE; apply: eq_bigr => h _; rewrite state_att // -mulmxA mxE.
rewrite [LHS]mxE sum_heads {sum_heads} !stateE.
under eq_bigr => h _ do under eq_bigr => t' _ do rewrite state_moves //.
have zero (F : 'I_H -> 'I_n -> R) : (forall h t', F h t' = 0) -> \sum_h \sum_t' F h t' = 0.
  by move=> F0; rewrite big1 // => h _; rewrite big1.
case: u => [[[[[[[l' i] h'] j]|[l' [h' j]]]|[y s]]|r]|e];
  try by rewrite zero ?addr0 // => h t'; rewrite mulr0.
rewrite addn0 addn1 ltnS [in RHS]leq_eqVlt; case: (l' =P l :> nat) => [el|_] /=; last first.
  by rewrite zero ?addr0 // => h t'; rewrite mulr0.
rewrite el ltnn add0r (bigD1 h') //= eqxx [X in _ + X]big1 ?addr0 => [|h hh']; last first.
  by rewrite big1 // => t' _; rewrite eq_sym (negPf hh') mulr0.
by rewrite /result -mulmxA mxE.
Qed.

Lemma mlp_step l : (l < L)%N -> state l 1 + gated_mlp g (gated_host l) (state l 1) = state l.+1 0.
Proof.
move=> lL; apply/matrixP => t v; rewrite -[v]enum_valK; move: (enum_val v) => {v} u.
rewrite [LHS]mxE /gated_host productsE // !stateE; under eq_bigr => p _ do rewrite expr0 mul1r.
(* what the products add at the place of y *)
have value y : (layer_of y == l :> nat) ->
    \sum_(s : source) state l 1 t (enum_rank (inl (inl (inl (inr (layer_of y, s)))) : C))
      * state l 1 t (enum_rank (inl (inl (inr (y, s))) : C)) = (stream l.+1 *m column_of y) t 0.
  move=> /eqP yl; rewrite /stream /= mulmx_suml summxE.
  rewrite (eq_bigr (fun s : source => result l s.1 t s.2 * constant y s)) => [|[h j] _]; last first.
    by rewrite !stateE yl addn1 ltnSn.
  rewrite -(pair_bigA _ (fun h j => result l h t j * constant y (h, j))) /=.
  apply: eq_bigr => h _; rewrite -/(stream l) /= mulmxA -/(result l h) -mulmxA mxE; apply: eq_bigr => j _.
  by rewrite /constant yl.
pose F (ys : goal * source) := state l 1 t (enum_rank (inl (inl (inl (inr (layer_of ys.1, ys.2)))) : C))
  * state l 1 t (enum_rank (inl (inl (inr ys)) : C)).
have split : \sum_(ys : goal * source | (layer_of ys.1 == l :> nat) && (place ys.1 == u)) F ys
    = \sum_(y | (layer_of y == l :> nat) && (place y == u)) (stream l.+1 *m column_of y) t 0.
  rewrite [RHS](eq_bigr (fun y => \sum_s F (y, s))) => [|y /andP[yl _]]; last by rewrite -value.
  by rewrite pair_big_dep /=; apply: eq_big => -[y s] //=; rewrite andbT.
rewrite [X in _ + X]split {split value F}.
(* at most one y has that place *)
have at_place y : u = place y -> \sum_(y | (layer_of y == l :> nat) && (place y == u))
    (stream l.+1 *m column_of y) t 0 = if layer_of y == l :> nat then (stream l.+1 *m column_of y) t 0 else 0.
  move=> ->; case: ifP => yl.
    rewrite (big_pred1 y) // => y'; rewrite (inj_eq place_inj) andbC.
    by apply/andP/eqP => [[/eqP]|->].
  by rewrite big1 // => y' /andP[y'l /eqP/place_inj e]; rewrite e yl in y'l.
have no_place : (forall y, place y <> u) -> \sum_(y | (layer_of y == l :> nat) && (place y == u))
    (stream l.+1 *m column_of y) t 0 = 0.
  by move=> no; rewrite big1 // => y /andP[_ /eqP e]; case: (no y e).
case: u at_place no_place => [[[[[[[l' i] h'] j]|[l' [h' j]]]|[y s]]|r]|e] at_place no_place.
- case: (unliftP ord0 l') at_place no_place => [l0|] -> at_place no_place; last first.
    rewrite no_place; first by rewrite addr0 !leq0n.
    by case=> [[[[l1 a] b'] c']|r] e; [case: e|discriminate e].
  rewrite (at_place (inl (l0, i, h', j)) erefl) {at_place no_place} lift0 ltnS [in RHS]leq_eqVlt.
  rewrite [layer_of _]/= [column_of _]/=; have -> : widen_ord (leqnSn L') l0 = l0 :> nat by [].
  case: (l0 =P l :> nat) => [->|_]; last by rewrite addr0.
  by rewrite ltnn add0r orTb colE mulmxA -colE [LHS]mxE.
- rewrite no_place; first by rewrite addr0 addn1 addn0.
  by case=> [[[[l1 a] b'] c']|r] e; discriminate e.
- rewrite no_place; first by rewrite addr0.
  by case=> [[[[l1 a] b'] c']|r'] e; discriminate e.
- rewrite (at_place (inr r) erefl) {at_place no_place} (ltn_eqF lL) add0r eqSS.
  rewrite [layer_of _]/= [column_of _]/=; have -> : (ord_max : 'I_L) = L' :> nat by [].
  by rewrite eq_sym; case: (l =P L') => [->|_] //; rewrite -colE [LHS]mxE.
- rewrite no_place; first by rewrite addr0.
  by case=> [[[[l1 a] b'] c']|r] e'; discriminate e'.
Qed.

(* the host follows the target *)
Lemma gated_follows l : (l <= L)%N -> gated_net g A gated_host l (X *m gated_program) = state l 0 /\
  forall l' h, (l' < l)%N -> gated_att g A gated_host (X *m gated_program) l' h = att A (layers T) X l' h.
Proof.
elim: l => [|l IH] lL; first by rewrite state_start.
have [eS eA] := IH (ltnW lL).
have eAl h : gated_att g A gated_host (X *m gated_program) l h = att A (layers T) X l h.
  by rewrite /gated_att eS; apply: state_att.
split=> [|l' h]; first by rewrite -mlp_step // -attention_step // -eS.
by rewrite ltnS leq_eqVlt => /orP[/eqP ->|]; [exact: eAl|exact: eA].
Qed.

Lemma gated_output : gated_net g A gated_host L (X *m gated_program) *m gated_out = net A (layers T) L X.
Proof.
have [-> _] := gated_follows (leqnn L); rewrite program_sel.
by apply/matrixP => t r; rewrite mxE eqxx.
Qed.

End Host.

(* Theorem A: one host for all untied targets. The embedding serves every gate of the law, every attention *)
(* map, every context length and every input with X c = 1.                                                *)
Theorem gated_universal (R : ringType) (H L d din m : nat) : (0 < L)%N ->
  (3 * H ^ 2 * d ^ 2 * (L - 1) + 4 * H * d * L + H * d * din + din <= m)%N ->
  exists (K : nat) (B : nat -> gated_block R H d m K) (U : 'M[R]_(m, din)),
  [/\ forall l h, [/\ is01 (lQ (attention (B l)) h), is01 (lK (attention (B l)) h)
                    & is01 (lV (attention (B l)) h)],
      forall l, [/\ signs (gate (B l)), signs (linear (B l)) & signs (output (B l))],
      is01 U &
      forall (T : transformer R H d din) (c : 'cV[R]_din), exists E : 'M[R]_(din, m),
      forall (g : R -> R) (A : attention_map R H d) n (X : 'M[R]_(n, din)),
        gate_law g -> X *m c = const_mx 1 ->
        (forall l h, (l < L)%N -> gated_att g A B (X *m E) l h = att A (layers T) X l h) /\
        gated_net g A B L (X *m E) *m U = net A (layers T) L X].
Proof.
case: L => // L' _ /subnKC <-; move: (m - _)%N => k; rewrite -card_gated_coord.
exists _, (gated_host R H d din L' k), (gated_out R H d din L' k); split=> [l h|l||T c].
- by split; exact: is01_bool.
- exact: products_signs.
- exact: is01_bool.
exists (gated_program L' k T c) => g A n X law one; split=> [l h lL|]; last exact: gated_output.
by have [_ ->] := gated_follows k T A law one (leqnn L'.+1).
Qed.

(* Gates. Silu and gelu are z s(z) with s(z) + s(-z) = 1: the logistic function, the normal distribution. *)

Lemma sigmoid_gate (R : ringType) (s : R -> R) : (forall z, s z + s (- z) = 1) -> gate_law (fun z => z * s z).
Proof. by move=> e z; rewrite mulNr opprK -mulrDr e mulr1. Qed.

Lemma relu_gate (R : realDomainType) : gate_law (fun z : R => Order.max z 0).
Proof.
move=> z; case: (leP 0 z) => z0.
  by rewrite max_r ?oppr_le0 // subr0.
by rewrite max_l ?oppr_ge0 ?ltW // sub0r opprK.
Qed.
