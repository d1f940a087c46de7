(* Shared queries in groups: heads narrower than the output, almost all targets.                      *)
(*                                                                                                    *)
(* A query of d columns does not hold an output of d_in > d, but the queries of several heads do, with*)
(* an invertible change of basis G^(l,h) for each, made up for by the keys. Of each full group of g   *)
(* heads the last needs no coordinates of its own: it reads the first d columns of the output and the *)
(* queries of the others.                                                                             *)
(*                                                                                                    *)
(* Coordinates: a key trie, d for every word of length 1..L; a query trie, d for every word (w, h)    *)
(* whose reader h has a block of its own at the layer |w|; a shift register, d_in for every word of   *)
(* length L. The value matrix of head i sends block w of a trie to block (i, w), where both are       *)
(* there, and register block (w_1, ..., w_L) to (i, w_1, ..., w_(L-1)).                               *)
(*                                                                                                    *)
(*   block own                blocks (w, h), |w| < L, for the heads h with own |w| h                  *)
(*   group_host               the host; the query reader of h reads the blocks (x), reads h x, and,   *)
(*                            if root h, the first d columns of the output                            *)
(*   group_matches            it serves, by attention-matching, every target for which               *)
(*                              M_w W_Q^(l,h) G^(l,h) = M_w (sum over reads h x of N^(l,x)            *)
(*                                                           + first d columns of Y_l, if root h)     *)
(*                            has a solution with invertible G; N^(l,x) = 0 where x has no block,     *)
(*                            Y_l = M^(l,h0) ... M^(L-1,h0)                                           *)
(*   shared_query_groups      the host of the groups: for every m >= d_in H^L + d (S + the sum over   *)
(*                            l < L of H^l (H - floor(H/g))) one tied {0,1} host, with at most m      *)
(*                            nonzeros per matrix, serves every untied target with invertible G^(l,h) *)
(*                            such that, for the last head h of each full group,                      *)
(*                              W_Q^(l,h) G^(l,h) = sum of the others' W_Q^(l,x) G^(l,x)              *)
(*                                                  + first d columns of Y_l                          *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words Selection Emulation Trie SharedQuery.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

(* Selections of coordinates that may be missing *)

Section Partial.
Variables (R : ringType) (H : nat) (C : finType).

Definition psel n (f : 'I_n -> option C) : 'M[R]_(#|C|, n) :=
  \matrix_(u, j) (Some (enum_val u) == f j)%:R.

Lemma mul_psel n (f : 'I_n -> option C) a (A : 'M[R]_(a, #|C|)) :
  A *m psel f = \matrix_(i, j) oapp (fun c => A i (enum_rank c)) 0 (f j).
Proof.
apply/matrixP => i j; rewrite !mxE; case e: (f j) => [c|] /=; last first.
  by rewrite big1 // => u _; rewrite mxE e mulr0.
rewrite (bigD1 (enum_rank c)) //= !mxE enum_rankK e eqxx mulr1 big1 ?addr0 // => u.
by rewrite -(inj_eq enum_val_inj) enum_rankK mxE e => ne; rewrite (inj_eq Some_inj) (negPf ne) mulr0.
Qed.

Lemma wprod_psel n (r : 'I_H -> rel C) (g : seq 'I_H -> 'I_n -> option C) l0 p :
  (forall h s u j, oapp (r h u) false (g s j) = (Some u == g (h :: s) j)) ->
  wprod (fun _ h => rel_mx R (r h)) l0 p *m psel (g [::]) = psel (g p).
Proof.
move=> step; elim: p l0 => [|h p IH] l0; first by rewrite mul1mx.
rewrite wprod_cons -mulmxA IH mul_psel; apply/matrixP => u j; rewrite !mxE -step.
by case: (g p j) => [c|] //=; rewrite mxE enum_rankK.
Qed.

Lemma program_psel a (c : 'I_a -> C -> R) n (f : 'I_n -> option C) :
  program c *m psel f = \matrix_(i, j) oapp (c i) 0 (f j).
Proof.
by rewrite mul_psel; apply/matrixP => i j; rewrite !mxE; case: (f j) => [u|] //=; rewrite mxE enum_rankK.
Qed.

End Partial.

(* Blocks of a trie of which some are left out *)

Section Block.
Variables (H L : nat) (own : nat -> 'I_H -> bool).

Definition block := [finType of {l : 'I_L & (l.-tuple 'I_H * {h : 'I_H | own l h})%type}].
Definition block_word (x : block) : seq 'I_H * 'I_H := (tval (tagged x).1, val (tagged x).2).

Lemma block_word_inj : injective block_word.
Proof.
move=> [[t lt] [x h]] [[u lu] [y k]] e; rewrite /block_word /= in e.
have tu : t = u by have := congr1 (fun p => size p.1) e; rewrite /= !size_tuple.
case: u / tu lu y k e => lu y k e.
rewrite (bool_irrelevance lu lt) in y k e *; case: e => ex ek.
by congr existT; congr (_, _); apply: val_inj.
Qed.

Definition block_at (w : seq 'I_H) (h : 'I_H) : option block := [pick x | block_word x == (w, h)].

Lemma block_atE x w h : (Some x == block_at w h) = (block_word x == (w, h)).
Proof.
rewrite /block_at; case: pickP => [y /eqP <-|->] //.
by rewrite (inj_eq Some_inj) (inj_eq block_word_inj).
Qed.

Lemma block_at_ex w h : block_at w h = (size w < L)%N && own (size w) h :> bool.
Proof.
apply/idP/idP => [|/andP[wL o]].
  case e: (block_at w h) => [x|] // _; have := block_atE x w h; rewrite e eqxx => /esym/eqP[<- <-].
  by case: x {e} => [[t tL] [x [k o]]] /=; rewrite size_tuple tL.
have := block_atE (existT _ (Ordinal wL) (in_tuple w, exist _ h o)) w h.
by rewrite [X in _ = X]eqxx => /eqP <-.
Qed.

Lemma block_at_word w h x : block_at w h = Some x -> block_word x = (w, h).
Proof. by move=> e; apply/eqP; rewrite -block_atE e. Qed.

Definition moves (w : seq 'I_H * 'I_H) (i : 'I_H) (v : seq 'I_H * 'I_H) : bool := w == (i :: v.1, v.2).

Lemma block_step (down : forall l h, own l.+1 h -> own l h) i x w h :
  oapp (fun y => moves (block_word x) i (block_word y)) false (block_at w h)
  = (Some x == block_at (i :: w) h).
Proof.
case e: (block_at w h) => [y|] /=; first by rewrite block_atE (block_at_word e).
apply/esym/negP => /eqP ex; have := block_at_ex (i :: w) h; rewrite -ex => /esym/andP[/ltnW wL /down o].
by have := block_at_ex w h; rewrite e wL o.
Qed.

Lemma card_block : #|block| = (\sum_(l < L) H ^ l * #|[pred h | own l h]|)%N.
Proof.
rewrite card_tagged sumnE big_map big_enum /=; apply: eq_bigr => l _.
by rewrite card_prod card_tuple card_ord card_sig.
Qed.

End Block.
Local Opaque block_word.

Section Groups.
Variables (R : comUnitRingType) (H d din L k : nat) (h0 : 'I_H).
Variables (own : nat -> 'I_H -> bool) (reads : rel 'I_H) (root : pred 'I_H).
Hypothesis own_down : forall l h, own l.+1 h -> own l h.

Notation all_heads := (fun (_ : nat) (_ : 'I_H) => true).
Definition group_coord :=
  [finType of block L all_heads * 'I_d + block L own * 'I_d + L.-tuple 'I_H * 'I_din + 'I_k].
Notation C := group_coord.
Notation m := #|C|.

Lemma card_group_coord :
  m = (d * (word_count H L + \sum_(l < L) H ^ l * #|[pred h | own l h]|) + din * H ^ L + k)%N.
Proof.
rewrite !card_sum !card_prod !card_block card_tuple !card_ord -mulnDl mulnC (mulnC (H ^ L)%N).
congr (_ * (_ + _) + _ + _)%N; rewrite /word_count big_add1 big_mkord; apply: eq_bigr => l _.
by rewrite expnSr; congr (_ * _)%N; rewrite -[RHS]card_ord; apply: eq_card.
Qed.

Definition group_relV (h : 'I_H) : rel C := fun u v =>
  match u, v with
  | inl (inl (inl (x, i))), inl (inl (inl (y, j))) => moves (block_word x) h (block_word y) && (i == j)
  | inl (inl (inr (x, i))), inl (inl (inr (y, j))) => moves (block_word x) h (block_word y) && (i == j)
  | inl (inr (x, i)), inl (inr (y, j)) => (tval x == take L (h :: y)) && (i == j)
  | _, _ => false
  end.

Definition group_relK (h : 'I_H) (u : C) (j : nat) : bool :=
  if u is inl (inl (inl (x, i))) then (block_word x == ([::], h)) && (i == j :> nat) else false.

Definition group_relQ (h : 'I_H) (u : C) (j : nat) : bool :=
  match u with
  | inl (inl (inr (x, i))) => [&& (block_word x).1 == [::], reads h (block_word x).2 & i == j :> nat]
  | inl (inr (x, i)) => [&& root h, tval x == nseq L h0 & i == j :> nat]
  | _ => false
  end.

Definition group_root (u : C) (j : nat) : bool :=
  if u is inl (inr (x, i)) then (tval x == nseq L h0) && (i == j :> nat) else false.

Definition group_host : layer R H d m :=
  Layer (fun h => reader R (group_relQ h) d) (fun h => reader R (group_relK h) d)
        (fun h => rel_mx R (group_relV h)).
Definition group_out : 'M[R]_(m, din) := reader R group_root din.

(* the coordinates of a key block, of a query block, if there is one, and of a register block *)
Definition at_key (h : 'I_H) (w : seq 'I_H) (j : 'I_d) : option C :=
  omap (fun x => inl (inl (inl (x, j)))) (block_at L all_heads w h).
Definition at_query (h : 'I_H) (w : seq 'I_H) (j : 'I_d) : option C :=
  omap (fun x => inl (inl (inr (x, j)))) (block_at L own w h).
Definition at_reg (w : seq 'I_H) (j : 'I_din) : C := inl (inr (padded L h0 w, j)).

Lemma at_keyE h w j u : (Some u == at_key h w j) =
  if u is inl (inl (inl (x, i))) then (block_word x == (w, h)) && (i == j) else false.
Proof.
rewrite /at_key; case: u => [[[[x i]|[x i]]|[x i]]|x]; rewrite -?block_atE;
  by case: (block_at L all_heads w h).
Qed.

Lemma at_queryE h w j u : (Some u == at_query h w j) =
  if u is inl (inl (inr (x, i))) then (block_word x == (w, h)) && (i == j) else false.
Proof.
rewrite /at_query; case: u => [[[[x i]|[x i]]|[x i]]|x]; rewrite -?block_atE;
  by case: (block_at L own w h).
Qed.

Lemma group_key w h : wprod (fun=> lV group_host) 0 w *m lK group_host h = psel R (at_key h w).
Proof.
have -> : lK group_host h = psel R (at_key h [::]).
  by apply/matrixP => u j; rewrite !mxE at_keyE; case: (enum_val u) => [[[[x i]|[x i]]|[x i]]|x].
apply: wprod_psel => i s u j; rewrite at_keyE {1}/at_key.
case: u => [[[[x a]|[x a]]|[x a]]|x]; rewrite -?block_atE -?block_step //;
  by case: (block_at L all_heads s h).
Qed.

Lemma at_query_wprod w h :
  wprod (fun=> lV group_host) 0 w *m psel R (at_query h [::]) = psel R (at_query h w).
Proof.
apply: wprod_psel => i s u j; rewrite at_queryE {1}/at_query.
case: u => [[[[x a]|[x a]]|[x a]]|x]; rewrite -?block_atE -?(block_step own_down) //;
  by case: (block_at L own s h).
Qed.

Lemma at_reg_wprod w : wprod (fun=> lV group_host) 0 w *m sel R (at_reg [::]) = sel R (at_reg w).
Proof.
rewrite (@wprod_sel _ _ _ _ _ at_reg 0) // => a s [[[[x i]|[x i]]|[x i]]|x] j //= _.
by rewrite -padded_cons.
Qed.

Lemma group_rootE (u : C) (j : 'I_din) : group_root u j = (u == at_reg [::] j).
Proof.
case: u => [[[[x i]|[x i]]|[x i]]|x] //=; have -> // : nseq L h0 = padded L h0 [::].
by rewrite paddedE // subn0.
Qed.

Lemma group_query w h : wprod (fun=> lV group_host) 0 w *m lQ group_host h =
  \sum_(x | reads h x) psel R (at_query x w) + (if root h then sel R (at_reg w) *m pid_mx din else 0).
Proof.
have -> : lQ group_host h = \sum_(x | reads h x) psel R (at_query x [::])
    + (if root h then sel R (at_reg [::]) *m pid_mx din else 0).
  rewrite -(reader_sel _ d group_rootE); last first.
    by move=> [[[[x i]|[x i]]|[x i]]|x] j //= => /andP[_ /eqP <-].
  apply/matrixP => u j; rewrite mxE [RHS]mxE summxE.
  under eq_bigr => x _ do rewrite mxE at_queryE.
  have -> : (if root h then reader R group_root d else 0) u j = (root h && group_root (enum_val u) j)%:R.
    by case: (root h); rewrite mxE.
  case: (enum_val u) => [[[[x i]|[x i]]|[x i]]|x]; cbv beta iota delta [group_relQ group_root];
    rewrite ?andbF ?addr0.
  - by rewrite big1.
  - case: (block_word x) => v y /=; under eq_bigr => z _ do rewrite xpair_eqE.
    rewrite big_mkcond (bigD1 y) //= eqxx andbT big1 ?addr0 => [|z ne].
      by case: (reads h y); rewrite ?andbF ?andbT.
    by rewrite (eq_sym y) (negPf ne) andbF; case: ifP.
  - by rewrite big1 ?add0r // andbA.
  - by rewrite big1.
rewrite mulmxDr mulmx_sumr; congr (_ + _); first by apply: eq_bigr => x _; apply: at_query_wprod.
by case: (root h); rewrite ?mulmx0 // mulmxA at_reg_wprod.
Qed.

Lemma group_output w : wprod (fun=> lV group_host) 0 w *m group_out = sel R (at_reg w).
Proof. by rewrite /group_out (reader_sel_id _ group_rootE) at_reg_wprod. Qed.

(* The program of a target *)

Variables (T : nat -> layer R H d din) (N : nat -> 'I_H -> 'M[R]_(din, d)) (G : nat -> 'I_H -> 'M[R]_d).

Definition group_program : 'M[R]_(din, m) := program (fun i (u : C) => match u with
  | inl (inl (inl (x, j))) => let: (w, h) := block_word x in
      (wprod (values T) 0 w *m (lK (T (size w)) h *m (invmx (G (size w) h))^T)) i j
  | inl (inl (inr (x, j))) => let: (w, h) := block_word x in (wprod (values T) 0 w *m N (size w) h) i j
  | inl (inr (x, j)) => wprod (values T) 0 x i j
  | inr _ => 0 end).

Hypothesis inv_G : forall l h, (l < L)%N -> G l h \in unitmx.
Hypothesis solved : forall l (w : l.-tuple 'I_H) h, (l < L)%N ->
  wprod (values T) 0 w *m (lQ (T l) h *m G l h) =
  wprod (values T) 0 w *m (\sum_(x | reads h x) (if own l x then N l x else 0)
                           + (if root h then later L h0 T l *m pid_mx din else 0)).

Lemma group_matches : matches_logits L (fun=> group_host) group_out T group_program.
Proof.
have reg w : (size w <= L)%N ->
    group_program *m sel R (at_reg w) = wprod (values T) 0 w *m later L h0 T (size w).
  move=> wL; rewrite program_sel /later -(add0n (size w)) -wprod_cat -paddedE //.
  by apply/matrixP => i j; rewrite mxE.
split=> [l w v h lL|w]; last first.
  by rewrite -mulmxA group_output reg size_tuple // /later subnn mulmx1.
have -> : group_program *m wprod (values (fun=> group_host)) 0 v *m lK group_host h
    = wprod (values T) 0 v *m (lK (T l) h *m (invmx (G l h))^T).
  rewrite -mulmxA group_key program_psel; apply/matrixP => i j; rewrite mxE /at_key.
  case e: (block_at L all_heads v h) => [x|] /=; first by rewrite (block_at_word e) size_tuple.
  by have := block_at_ex L all_heads v h; rewrite e size_tuple lL.
have -> : group_program *m wprod (values (fun=> group_host)) 0 w *m lQ group_host h
    = wprod (values T) 0 w *m (lQ (T l) h *m G l h).
  rewrite -mulmxA group_query solved // mulmxDr [RHS]mulmxDr mulmx_sumr [in RHS]mulmx_sumr; congr (_ + _).
    apply: eq_bigr => x _; rewrite program_psel; apply/matrixP => i j; rewrite mxE /at_query.
    have := block_at_ex L own w x; rewrite size_tuple lL /=.
    case e: (block_at L own w x) => [y|] /= <-; first by rewrite (block_at_word e) size_tuple.
    by rewrite mulmx0 mxE.
  by case: (root h); rewrite ?mulmx0 // mulmxA reg size_tuple ?(ltnW lL) // mulmxA.
by rewrite !trmx_mul trmxK !mulmxA mulmxK ?inv_G.
Qed.

End Groups.

(* Sparsity *)

Lemma group_sparse (R : comUnitRingType) (H d din L k : nat) h0 own reads root :
  let S := @group_host R H d din L k h0 own reads root in
  [/\ forall h, sparse01 (lQ S h), forall h, sparse01 (lK S h), forall h, sparse01 (lV S h) &
      sparse01 (@group_out R H d din L k h0 own)].
Proof.
split=> [h|h|h|].
- by apply: sparse01_reader => -[[[[x i]|[x i]]|[x i]]|x] //= j j' /and3P[_ _ /eqP <-] /and3P[_ _ /eqP].
- by apply: sparse01_reader => -[[[[x i]|[x i]]|[x i]]|x] //= j j' /andP[_ /eqP <-] /andP[_ /eqP].
- apply: sparse01_rel => -[[[[x i]|[x i]]|[x i]]|x] [[[[x' i']|[x' i']]|[x' i']]|x']
    [[[[y j]|[y j]]|[y j]]|y] //= /andP[/eqP e /eqP ->] /andP[/eqP e' /eqP ->].
  + by rewrite (block_word_inj (etrans e (esym e'))).
  + by rewrite (block_word_inj (etrans e (esym e'))).
  + by rewrite (val_inj (etrans e (esym e'))).
- by apply: sparse01_reader => -[[[[x i]|[x i]]|[x i]]|x] //= j j' /andP[_ /eqP <-] /andP[_ /eqP].
Qed.

(* Groups of g heads: 0..g-1, g..2g-1, ...; the last head of a full group is one with g | h + 1 *)

Lemma last_in_group g n : (0 < g)%N -> (g %| n.+1)%N -> n.+1 = ((n %/ g).+1 * g)%N.
Proof. by move=> g0 gn; rewrite -[LHS](divnK gn) divnS // gn. Qed.

Lemma card_last H g : (0 < g)%N -> #|[pred h : 'I_H | ~~ (g %| h.+1)%N]| = (H - H %/ g)%N.
Proof.
move=> g0; rewrite -[X in (X - _)%N]card_ord -(cardC [pred h : 'I_H | (g %| h.+1)%N]).
have -> : #|[pred h : 'I_H | (g %| h.+1)%N]| = (H %/ g)%N.
  rewrite -sum1_card big_mkcond /=; elim: (H) => [|n IH]; first by rewrite big_ord0 div0n.
  by rewrite big_ord_recr /= IH divnS // addnC inE /=; case: (g %| _)%N.
by rewrite addKn; apply: eq_card.
Qed.

Definition group_solvable (R : comUnitRingType) (H d din L g : nat) (h0 : 'I_H)
    (T : nat -> layer R H d din) : Prop :=
  exists G : nat -> 'I_H -> 'M[R]_d, (forall l h, (l < L)%N -> G l h \in unitmx) /\
  forall l (h : 'I_H), (l < L)%N -> (g %| h.+1)%N ->
    lQ (T l) h *m G l h = \sum_(x : 'I_H | (x %/ g == h %/ g)%N && (x != h)) lQ (T l) x *m G l x
                          + later L h0 T l *m pid_mx din.

Theorem shared_query_groups (R : comUnitRingType) (H d din L g m : nat) (h0 : 'I_H) : (0 < g)%N ->
  (d * (word_count H L + \sum_(l < L) H ^ l * (H - H %/ g)) + din * H ^ L <= m)%N ->
  exists (S : layer R H d m) (U : 'M[R]_(m, din)),
  [/\ forall h, sparse01 (lQ S h), forall h, sparse01 (lK S h), forall h, sparse01 (lV S h), sparse01 U &
      forall T : transformer R H d din, group_solvable L g h0 (layers T) ->
        exists E : 'M[R]_(din, m),
        matches_logits L (fun=> S) U (layers T) E /\ emulates_logits L (fun=> S) U (layers T) E].
Proof.
move=> g0; pose own (_ : nat) (h : 'I_H) := ~~ (g %| h.+1)%N; pose root (h : 'I_H) := (g %| h.+1)%N.
pose reads (h x : 'I_H) := if root h then (x %/ g == h %/ g)%N && (x != h) else x == h.
under eq_bigr => l _ do rewrite -(card_last H g0) -/(#|[pred h | own (nat_of_ord l) h]|).
move=> /subnKC <-; move: (m - _)%N => k; rewrite -(@card_group_coord H d din L k own).
exists (group_host R d din L k h0 own reads root), (group_out R d din L k h0 own).
have [sQ sK sV sU] := group_sparse R d din L k h0 own reads root; split=> // T [G [uG eG]].
exists (group_program L k own (layers T) (fun l h => lQ (layers T l) h *m G l h) G).
have matchT := @group_matches R H d din L k h0 own reads root (fun _ _ o => o) (layers T)
  (fun l h => lQ (layers T l) h *m G l h) G uG.
suff /matchT mT : forall l (w : l.-tuple 'I_H) h, (l < L)%N ->
    wprod (values (layers T)) 0 w *m (lQ (layers T l) h *m G l h) =
    wprod (values (layers T)) 0 w *m (\sum_(x | reads h x) (if own l x then lQ (layers T l) x *m G l x else 0)
                           + (if root h then later L h0 (layers T) l *m pid_mx din else 0)).
  by split=> //; apply: matching_logits_emulates.
move=> l w h lL; congr (_ *m _); rewrite /reads; case: (boolP (root h)) => rh; last first.
  by rewrite (big_pred1 h) // addr0 /own ifT.
rewrite eG //; congr (_ + _); apply: eq_bigr => x /andP[/eqP xg xh]; rewrite ifT //.
apply: contra xh => xl; apply/eqP/val_inj/succn_inj.
by rewrite (last_in_group g0 xl) xg -(last_in_group g0 rh).
Qed.
