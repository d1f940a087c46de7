(* Hosts with gated MLPs and the same weights in every block (Theorem B).                                *)
(*                                                                                                      *)
(* A coordinate that is 1 lets an MLP replace: it adds b 1 - a 1 to a. So queries, keys, values, heads'  *)
(* results and the output are reused, and the layers' constants stand in a register that every block     *)
(* shifts by one slot. Tied targets need one slot, which stays.                                          *)
(*                                                                                                      *)
(*   looped_step        what attention and MLP of a block do to the state, whatever the register holds   *)
(*   gated_looped       one host, tied, entries 0, 1 and -1, of every                                    *)
(*                      m >= 3 H^2 d^2 (L - 1) + H d d_in + 4 H d + d_in + 1, L >= 2, gives attention    *)
(*                      and outputs of every untied target, as gated_universal does                      *)
(*   gated_tied         the same for tied targets and every L, with 3 H^2 d^2 in place of the first term *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Selection Emulation Residual Trie Decision GatedMLP.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

Section Serves.
Variables (R : ringType) (H d : nat).

Definition gated_signs D K (B : gated_block R H d D K) : Prop :=
  [/\ forall h, [/\ is01 (lQ (attention B) h), is01 (lK (attention B) h) & is01 (lV (attention B) h)],
      signs (gate B), signs (linear B) & signs (output B)].

(* E gives attention and outputs of T, for every gate of the law, every attention map, n, and X with
   X c = 1 *)
Definition gated_serves din m K L (B : nat -> gated_block R H d m K) (U : 'M[R]_(m, din))
    (T : transformer R H d din) (c : 'cV[R]_din) (E : 'M[R]_(din, m)) : Prop :=
  forall (g : R -> R) (A : attention_map R H d) n (X : 'M[R]_(n, din)), gate_law g -> X *m c = const_mx 1 ->
  (forall l h, (l < L)%N -> gated_att g A B (X *m E) l h = att A (layers T) X l h) /\
  gated_net g A B L (X *m E) *m U = net A (layers T) L X.

End Serves.

(* The coordinates: queries, keys and values (goals); results of heads (sources); S slots of constants; the *)
(* last W_O; the output; 1; and k without use. S = S'.+1, and shift says whether blocks move the slots.     *)

Section Host.
Variables (R : ringType) (H d din S' k : nat) (shift : bool).
Notation S := S'.+1.

Definition head_row := [finType of 'I_H * 'I_d].
Definition readings := [finType of 'I_3 * head_row].
Definition entry := [finType of readings * head_row].
Definition looped_coord :=
  [finType of readings + head_row + 'I_S * entry + head_row * 'I_din + 'I_din + unit + 'I_k].
Notation C := looped_coord.
Notation m := #|C|.

Lemma card_looped_coord : m = (3 * H ^ 2 * d ^ 2 * S + H * d * din + 4 * H * d + din + 1 + k)%N.
Proof. by rewrite !(card_sum, card_prod) !card_ord card_unit -!mulnn; ring. Qed.

Definition goal_at (y : readings) : C := inl (inl (inl (inl (inl (inl y))))).
Definition result_at (s : head_row) : C := inl (inl (inl (inl (inl (inr s))))).
Definition slot_at (x : 'I_S) (e : entry) : C := inl (inl (inl (inl (inr (x, e))))).
Definition last_at (s : head_row) (r : 'I_din) : C := inl (inl (inl (inr (s, r)))).
Definition out_at (r : 'I_din) : C := inl (inl (inr r)).
Definition one_at : C := inl (inr tt).

Definition asks (i : nat) (h : 'I_H) (u : C) (j : nat) : bool :=
  if u is inl (inl (inl (inl (inl (inl (i', (h', j')))))))
  then [&& i' == i :> nat, h' == h & j' == j :> nat] else false.
Definition brings (h : 'I_H) : rel C := fun u v =>
  if v is inl (inl (inl (inl (inl (inr (h', j)))))) then (h' == h) && asks 2 h u j else false.
Definition looped_heads : layer R H d m :=
  Layer (fun h => reader R (asks 0 h) d) (fun h => reader R (asks 1 h) d) (fun h => rel_mx R (brings h)).

(* products: constants of slot 0 and the last W_O with the results; what is cleared; slots moved by one *)
Definition product := [finType of entry + head_row * 'I_din + C + 'I_S * entry].
Definition cleared (u : C) : bool := match u with
  | inl (inl (inl (inl (inl _)))) => true | inl (inl (inl (inl (inr _)))) => shift
  | inl (inl (inr _)) => true | _ => false end.
Definition left (p : product) : C := match p with
  | inl (inl (inl e)) => result_at e.2 | inl (inl (inr p)) => result_at p.1
  | inl (inr u) => u | inr p => slot_at (inord p.1.+1) p.2 end.
Definition right (p : product) : C := match p with
  | inl (inl (inl e)) => slot_at ord0 e | inl (inl (inr p)) => last_at p.1 p.2 | _ => one_at end.
Definition to (p : product) : C := match p with
  | inl (inl (inl e)) => goal_at e.1 | inl (inl (inr p)) => out_at p.2
  | inl (inr u) => u | inr p => slot_at p.1 p.2 end.
Definition active (p : product) : bool := match p with
  | inl (inl _) => true | inl (inr u) => cleared u | inr p => shift && (p.1.+1 < S)%N end.
Definition minus (p : product) : bool := if p is inl (inr _) then true else false.

Definition looped_host : gated_block R H d m #|[finType of product * bool]| :=
  products left right to active minus looped_heads.
Definition looped_out : 'M[R]_(m, din) := sel R out_at.

Lemma looped_signs : gated_signs looped_host.
Proof.
have [G N O] := products_signs left right to active minus looped_heads.
by split=> // h; split; exact: is01_bool.
Qed.

(* what slot x holds before block l, and the last W_O; a target T, and c with X c = 1 *)
Variables (D : nat -> 'I_S -> entry -> R) (W : head_row -> 'I_din -> R).
Variables (T : transformer R H d din) (c : 'cV[R]_din).

Definition looped_program : 'M[R]_(din, m) := program (fun a (u : C) => match u with
  | inl (inl (inl (inl (inl (inl (i, (h, j))))))) => reading T 0 i h a j
  | inl (inl (inl (inl (inr (x, e))))) => c a 0 * D 0 x e
  | inl (inl (inl (inr (s, r)))) => c a 0 * W s r
  | inl (inr _) => c a 0
  | _ => 0 end).

Variables (g : R -> R) (A : attention_map R H d) (n : nat) (X : 'M[R]_(n, din)).
Hypotheses (law : gate_law g) (one : X *m c = const_mx 1).
Hypothesis D_next : forall l x e, D l.+1 x e =
  if shift then if (x.+1 < S)%N then D l (inord x.+1) e else 0 else D l x e.

Let stream l : 'M[R]_(n, din) := net A (layers T) l X.
Let result l h : 'M[R]_(n, d) := att A (layers T) X l h *m stream l *m WV T l h.

Definition goal_value l (y : readings) t : R := if l is l'.+1
  then \sum_s result l' s.1 t s.2 * D l' ord0 (y, s) else (X *m reading T 0 y.1 y.2.1) t y.2.2.
Definition out_value l r t : R := if l is l'.+1 then \sum_s result l' s.1 t s.2 * W s r else 0.

(* the host's stream before the attention (after = false) or the MLP of block l *)
Definition looped_value l (after : bool) t (u : C) : R := match u with
  | inl (inl (inl (inl (inl (inl y))))) => goal_value l y t
  | inl (inl (inl (inl (inl (inr s))))) => if after then result l s.1 t s.2 else 0
  | inl (inl (inl (inl (inr (x, e))))) => D l x e
  | inl (inl (inl (inr (s, r)))) => W s r
  | inl (inl (inr r)) => out_value l r t
  | inl (inr _) => 1
  | inr _ => 0 end.
Definition looped_state l after : 'M[R]_(n, m) := program (looped_value l after).

Lemma looped_stateE l after t u : looped_state l after t (enum_rank u) = looped_value l after t u.
Proof. by rewrite mxE enum_rankK. Qed.

Lemma looped_start : X *m looped_program = looped_state 0 false.
Proof.
apply/matrixP => t u; rewrite !mxE; under eq_bigr => a _ do rewrite mxE.
have e1 : \sum_a X t a * c a 0 = 1 by have := congr1 (fun M : 'cV_n => M t 0) one; rewrite !mxE.
case: (enum_val u) => [[[[[[[i [h j]]|s]|[x e]]|[s r]]|r]|[]]|e] /=;
  try by rewrite big1 // => a _; rewrite mulr0.
- by rewrite mxE.
- by under eq_bigr => a _ do rewrite mulrA; rewrite -mulr_suml e1 mul1r.
- by under eq_bigr => a _ do rewrite mulrA; rewrite -mulr_suml e1 mul1r.
- exact: e1.
Qed.

Lemma split_products (P : pred product) (F : product -> R) : \sum_(p | P p) F p
  = \sum_(e | P (inl (inl (inl e)))) F (inl (inl (inl e)))
  + \sum_(q | P (inl (inl (inr q)))) F (inl (inl (inr q)))
    + \sum_(u | P (inl (inr u))) F (inl (inr u)) + \sum_(q | P (inr q)) F (inr q).
Proof. by rewrite 3!big_sumType. Qed.

(* one MLP: the register moves on, results become the next queries, keys, values and output *)
Lemma looped_mlp l :
  looped_state l true + gated_mlp g looped_host (looped_state l true) = looped_state l.+1 false.
Proof.
apply/matrixP => t v; rewrite -[v]enum_valK; move: (enum_val v) => {v} u.
rewrite [LHS]mxE productsE // !looped_stateE; under eq_bigr => p _ do rewrite !looped_stateE.
pose V := looped_value l true t; pose G p := (-1) ^+ minus p * (V (left p) * V (right p)).
rewrite -/V (eq_bigr G) // split_products.
have -> : \sum_(e | active (inl (inl (inl e))) && (to (inl (inl (inl e))) == u)) G (inl (inl (inl e)))
    = if u is inl (inl (inl (inl (inl (inl y))))) then goal_value l.+1 y t else 0.
  case: u => [[[[[[y|s]|[x e]]|[s r]]|r]|[]]|e]; try by rewrite big_pred0 // => -[].
  transitivity (\sum_(y' | y' == y) \sum_s G (inl (inl (inl (y', s))))).
    by rewrite pair_big_dep /=; apply: eq_big => -[y' s] //=; rewrite andbT.
  by rewrite big_pred1_eq; apply: eq_bigr => s _; rewrite /G /= expr0 mul1r.
have -> : \sum_(q | active (inl (inl (inr q))) && (to (inl (inl (inr q))) == u)) G (inl (inl (inr q)))
    = if u is inl (inl (inr r)) then out_value l.+1 r t else 0.
  case: u => [[[[[[y|s]|[x e]]|[s r]]|r]|[]]|e]; try by rewrite big_pred0 // => -[].
  transitivity (\sum_s \sum_(r' | r' == r) G (inl (inl (inr (s, r'))))).
    by rewrite pair_big_dep /=; apply: eq_big => -[s r'] //=.
  by apply: eq_bigr => s _; rewrite big_pred1_eq /G /= expr0 mul1r.
have -> : \sum_(w | active (inl (inr w)) && (to (inl (inr w)) == u)) G (inl (inr w)) = - (V u *+ cleared u).
  case cu: (cleared u); last first.
    by rewrite oppr0 big_pred0 // => w; apply: contraFF cu => /andP[/= + /eqP <-].
  rewrite (big_pred1 u) => [|w]; first by rewrite /G /= expr1 mulr1 mulN1r.
  by rewrite /=; case: eqP => [->|]; rewrite ?cu ?andbF.
have -> : \sum_(q | active (inr q) && (to (inr q) == u)) G (inr q)
    = if u is inl (inl (inl (inl (inr (x, e))))) then
        if shift && (x.+1 < S)%N then D l (inord x.+1) e else 0 else 0.
  case: u => [[[[[[y|s]|[x e]]|[s r]]|r]|[]]|e];
    try by rewrite big_pred0 // => -[x' e'] /=; rewrite andbF.
  case: ifP => on; last first.
    by rewrite big_pred0 // => -[x' e']; apply: contraFF on => /andP[/= + /eqP[<-]].
  rewrite (big_pred1 (x, e)) => [|[x' e']]; first by rewrite /G /= expr0 mul1r mulr1.
  by rewrite /= !inl_eqE inr_eqE; case: eqP => [[-> _]|]; rewrite ?on ?andbF.
case: u => [[[[[[y|s]|[x e]]|[s r]]|r]|[]]|e]; rewrite /V /= ?oppr0 ?mulr0n ?mulr1n ?addr0 ?add0r //.
- by rewrite addrCA subrr addr0.
- by rewrite subrr.
- by rewrite D_next; case: (shift); rewrite /= ?mulr1n ?mulr0n ?oppr0 ?addr0 // addrA subrr add0r.
- by rewrite addrCA subrr addr0.
Qed.

(* what the constants have to be *)
Variable L' : nat.
Notation L := L'.+1.
Hypothesis D_first : forall l y s, (l.+1 < L)%N ->
  D l ord0 (y, s) = (WO T l s.1 *m reading T l.+1 y.1 y.2.1) s.2 y.2.2.
Hypothesis W_last : forall s r, W s r = WO T L' s.1 s.2 r.

Lemma stream_next l b (B : 'M[R]_(din, b)) t j :
  \sum_(s : head_row) result l s.1 t s.2 * (WO T l s.1 *m B) s.2 j = (stream l.+1 *m B) t j.
Proof.
rewrite /stream /= mulmx_suml summxE.
rewrite -(pair_bigA _ (fun h j' => result l h t j' * (WO T l h *m B) j' j)) /=.
by apply: eq_bigr => h _; rewrite -/(stream l) /= mulmxA -/(result l h) -mulmxA mxE.
Qed.

Lemma goal_valueE l y t : (l < L)%N -> goal_value l y t = (stream l *m reading T l y.1 y.2.1) t y.2.2.
Proof.
case: l => [//|l] lL /=; rewrite -stream_next; apply: eq_bigr => s _; by rewrite D_first.
Qed.

Lemma looped_read l after (i : 'I_3) h : (l < L)%N ->
  looped_state l after *m reader R (asks i h) d = stream l *m reading T l i h.
Proof.
move=> lL; rewrite (@reader_sel_id _ _ _ _ (fun j => goal_at (i, (h, j)))) => [|u j].
  by rewrite program_sel; apply/matrixP => t j; rewrite mxE /= goal_valueE.
by case: u => [[[[[[[i' [h' j']]|s]|[x e]]|[s r]]|r]|[]]|e].
Qed.

Lemma looped_brings l h t (u : C) : (l < L)%N ->
  (looped_state l false *m rel_mx R (brings h)) t (enum_rank u) =
  if u is inl (inl (inl (inl (inl (inr (h', j)))))) then
    if h' == h then (stream l *m WV T l h) t j else 0
  else 0.
Proof.
move=> lL; rewrite mxE; under eq_bigr => v _ do rewrite [rel_mx _ _ _ _]mxE enum_rankK.
case: u => [[[[[[y|[h' j]]|[x e]]|[s r]]|r]|[]]|e] /=; try by rewrite big1 // => v _; rewrite mulr0.
case: (h' == h) => /=; last by rewrite big1 // => v _; rewrite mulr0.
have := looped_read false (inord 2) h lL; rewrite inordK // => /matrixP/(_ t j); rewrite [RHS]/= => <-.
by rewrite mxE; apply: eq_bigr => v _; rewrite [reader _ _ _ _ _]mxE.
Qed.

Lemma looped_att l h : (l < L)%N -> A l h (looped_state l false *m lQ looped_heads h)
  (looped_state l false *m lK looped_heads h) = att A (layers T) X l h.
Proof.
move=> lL; have := looped_read false (inord 0) h lL; have := looped_read false (inord 1) h lL.
by rewrite !inordK // /att /= => -> ->.
Qed.

Lemma looped_attention l : (l < L)%N ->
  res_step A l looped_heads (looped_state l false) = looped_state l true.
Proof.
move=> lL; apply/matrixP => t v; rewrite -[v]enum_valK; move: (enum_val v) => {v} u.
rewrite [LHS]mxE summxE !looped_stateE.
have term h : (A l h (looped_state l false *m lQ looped_heads h) (looped_state l false *m lK looped_heads h)
      *m looped_state l false *m lV looped_heads h) t (enum_rank u)
    = \sum_t' att A (layers T) X l h t t' * (looped_state l false *m rel_mx R (brings h)) t' (enum_rank u).
  by rewrite looped_att // -mulmxA mxE.
under eq_bigr => h _ do (rewrite term; under eq_bigr => t' _ do rewrite looped_brings //).
have zero (F : 'I_H -> 'I_n -> R) : (forall h t', F h t' = 0) -> \sum_h \sum_t' F h t' = 0.
  by move=> F0; rewrite big1 // => h _; rewrite big1.
case: u {term} => [[[[[[y|[h j]]|[x e]]|[s r]]|r]|[]]|e] /=;
  try by rewrite zero ?addr0 // => h' t'; rewrite mulr0.
rewrite add0r (bigD1 h) //= eqxx [X in _ + X]big1 ?addr0 => [|h' hh']; last first.
  by rewrite big1 // => t' _; rewrite eq_sym (negPf hh') mulr0.
by rewrite /result -mulmxA mxE.
Qed.

Lemma looped_follows l : (l <= L)%N ->
  gated_net g A (fun=> looped_host) l (X *m looped_program) = looped_state l false /\
  forall l' h, (l' < l)%N ->
    gated_att g A (fun=> looped_host) (X *m looped_program) l' h = att A (layers T) X l' h.
Proof.
elim: l => [|l IH] lL; first by rewrite looped_start.
have [eS eA] := IH (ltnW lL).
have eAl h : gated_att g A (fun=> looped_host) (X *m looped_program) l h = att A (layers T) X l h.
  by rewrite /gated_att eS; apply: looped_att.
split=> [|l' h]; first by rewrite -looped_mlp // -looped_attention // -eS.
by rewrite ltnS leq_eqVlt => /orP[/eqP ->|]; [exact: eAl|exact: eA].
Qed.

Lemma looped_output :
  gated_net g A (fun=> looped_host) L (X *m looped_program) *m looped_out = net A (layers T) L X.
Proof.
have [-> _] := looped_follows (leqnn L); rewrite program_sel; apply/matrixP => t r; rewrite mxE /=.
have := stream_next L' 1%:M t r; rewrite mulmx1 => <-.
by apply: eq_bigr => s _; rewrite mulmx1 W_last.
Qed.

End Host.

(* The host depends on the sizes and on shift alone, and serves the target whose constants the register
   gives. *)
Lemma looped_serves (R : ringType) (H d din L' S' k : nat) (shift : bool)
  (D : nat -> 'I_S'.+1 -> entry H d -> R)
    (T : transformer R H d din) (c : 'cV[R]_din) :
  (forall l x e, D l.+1 x e =
     if shift then if (x.+1 < S'.+1)%N then D l (inord x.+1) e else 0 else D l x e) ->
  (forall l y s, (l < L')%N -> D l ord0 (y, s) = (WO T l s.1 *m reading T l.+1 y.1 y.2.1) s.2 y.2.2) ->
  exists E, gated_serves L'.+1 (fun=> looped_host R H d din S' k shift) (looped_out R H d din S' k) T c E.
Proof.
move=> D_next D_first; exists (looped_program k D (fun s r => WO T L' s.1 s.2 r) T c) => g A n X law one.
have D_first' l y s : (l.+1 < L'.+1)%N ->
  D l ord0 (y, s) = (WO T l s.1 *m reading T l.+1 y.1 y.2.1) s.2 y.2.2.
  exact: D_first.
split=> [l h lL|]; last exact: (looped_output k A law one D_next D_first').
by have [_ ->] := looped_follows k (fun s r => WO T L' s.1 s.2 r) A law one D_next D_first' (leqnn L'.+1).
Qed.

(* Theorem B, untied targets *)
Theorem gated_looped (R : ringType) (H L d din m : nat) : (1 < L)%N ->
  (3 * H ^ 2 * d ^ 2 * (L - 1) + H * d * din + 4 * H * d + din + 1 <= m)%N ->
  exists (K : nat) (B : gated_block R H d m K) (U : 'M[R]_(m, din)),
  [/\ gated_signs B, is01 U & forall (T : transformer R H d din) (c : 'cV[R]_din), exists E,
      gated_serves L (fun=> B) U T c E].
Proof.
case: L => [//|[//|S']] _; rewrite subn1 => /subnKC <-; move: (m - _)%N => k; rewrite -card_looped_coord.
exists _, (looped_host R H d din S' k true), (looped_out R H d din S' k); split=> [||T c].
- exact: looped_signs.
- exact: is01_bool.
pose D l (x : 'I_S'.+1) (e : entry H d) : R := if (l + x < S'.+1)%N
  then (WO T (l + x) e.2.1 *m reading T (l + x).+1 e.1.1 e.1.2.1) e.2.2 e.1.2.2 else 0.
apply: (@looped_serves _ _ _ _ _ _ _ _ D) => [l x e|l y s lS]; rewrite /D; last by rewrite addn0 lS.
case: (ltnP x.+1 S'.+1) => [xS|Sx]; first by rewrite inordK // -addSnnS.
by rewrite ltnNge addSnnS (leq_trans Sx) // leq_addl.
Qed.

(* Theorem B, tied targets: m does not depend on L *)
Theorem gated_tied (R : ringType) (H L d din m : nat) : (0 < L)%N ->
  (3 * H ^ 2 * d ^ 2 + H * d * din + 4 * H * d + din + 1 <= m)%N ->
  exists (K : nat) (B : gated_block R H d m K) (U : 'M[R]_(m, din)),
  [/\ gated_signs B, is01 U & forall Q K V O (c : 'cV[R]_din), exists E,
      gated_serves L (fun=> B) U (looped Q K V O) c E].
Proof.
case: L => [//|L'] _; rewrite -[(3 * _ * _)%N]muln1 => /subnKC <-; move: (m - _)%N => k.
rewrite -card_looped_coord.
exists _, (looped_host R H d din 0 k false), (looped_out R H d din 0 k); split=> [||Q K V O c].
- exact: looped_signs.
- exact: is01_bool.
by apply: (@looped_serves _ _ _ _ _ _ _ _
  (fun _ _ e => (O e.2.1 *m reading (looped Q K V O) 0 e.1.1 e.1.2.1) e.2.2 e.1.2.2)).
Qed.
