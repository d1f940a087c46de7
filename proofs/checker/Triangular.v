(* Hosts of zeros and ones with a residual stream.                                                          *)
(*                                                                                                         *)
(*   reduced           tied hosts: the columns of the words without the stream's letter are different unit *)
(*                     vectors; reduced_serves: so every tied target is matched                            *)
(*   triangular        each column has a one in a row of its own, which no later column meets;             *)
(*                     triangular_rank: so R_all has full column rank                                      *)
From Coq Require Import ZArith.
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words MatchingSystem Residual ResidualWords ResidualSystem ResidualTied.
From UtfproofChecker Require Import Layers Integers Hosts.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

Section Streamed.
Variables (o : ones) (H d dout m L : nat).
Let s := silent_ones o.
(* --- what is executed --- *)
Definition reduced (inv : seq code) : bool :=
  all (fun l => all (fun w => all (fun h => all (fun j =>
      lands m inv (0%N, rcons w h, j) (follow o m 0 w (oQ o 0 h j))
      && lands m inv (1%N, rcons w h, j) (follow o m 0 w (oK o 0 h j)))
    (iota 0 d)) (iota 0 H)) (words H l)) (iota 0 L)
  && all (fun t => all (fun w => all (fun j => lands m inv (2%N, w, j) (follow o m 0 w (oU o j))) (iota 0 dout))
    (words H t)) (iota 0 L.+1).

(* columns in canonical order: by kind, length, word, coordinate *)
Definition number (c : code) : nat := let: (k, w, j) := c in
  (((k * L.+1 + size w) * H.+1 ^ L + foldl (fun a x => a * H.+1 + x) 0 w) * (d + dout) + j)%N.
Definition nowhere : code := (3, [::], 0)%N.
Definition pivots (inv : seq code) (c : code) (xs : seq nat) : bool :=
  (count (fun a => (a < m)%N && (nth nowhere inv a == c)) xs == 1%N)
  && all (fun a => [|| (m <= a)%N, nth nowhere inv a == c, nth nowhere inv a == nowhere |
      (number c < number (nth nowhere inv a))%N]) xs.
Definition triangular (inv : seq code) : bool :=
  all (fun l => all (fun w => all (fun h => all (fun j =>
      pivots inv (0%N, rcons w h.+1, j) (follow s m 0 w (oQ o l h j))
      && pivots inv (1%N, rcons w h.+1, j) (follow s m 0 w (oK o l h j)))
    (iota 0 d)) (iota 0 H)) (words H.+1 l)) (iota 0 L)
  && all (fun w => all (fun j => pivots inv (2%N, w, j) (follow s m 0 w (oU o j))) (iota 0 dout)) (words H.+1 L).

(* --- what it means --- *)
Variable R : ringType.
Notation hostR := (host Z0 (inject R) H d m (ones_head o d m)).
Notation outR := (out Z0 (inject R) dout m (ones_out o dout m)).
Notation counts := (counts m R).
Notation letters_of := (map (oapp (fun h : 'I_H => h.+1) 0%N)).

Lemma res_wprod_counts l (w : seq (option 'I_H)) xs :
  res_wprod (values hostR) l w *m counts xs = counts (follow s m l (letters_of w) xs).
Proof.
elim: w l => [|h w IH] l /=; first by rewrite mul1mx.
rewrite -mulmxA IH; case: h => [h|] /=; first by rewrite mof_counts.
rewrite mul1mx; apply/colP => i; rewrite !mxE; congr (_%:R); elim: (follow _ _ _ _ _) => //= x xs' IHx.
by rewrite IHx; case: ifP => //= /negbT; rewrite -leqNgt => mx; rewrite (gtn_eqF (leq_trans (ltn_ord i) mx)).
Qed.
Lemma letters_mem (w : seq (option 'I_H)) : letters_of w \in words H.+1 (size w).
Proof.
elim: w => // h w IH; change (letters_of (h :: w) \in [seq a :: v | a <- iota 0 H.+1, v <- words H.+1 (size w)]).
apply/allpairsP; exists (oapp (fun h : 'I_H => h.+1) 0%N h, letters_of w).
by split=> //; rewrite mem_iota /= ltnS; case: h => [h|] //=.
Qed.
Lemma letters_of_inj : injective letters_of.
Proof. by apply: inj_map => -[h|] [k|] //= [] /ord_inj ->. Qed.

Let name (c : res_column H d dout L) : code := match c with
  | inl (x, j) => let v := rcons (letters_of (tagged x).1) (tagged x).2.+1 in
      match split j with inl j => (0, v, j : nat) | inr j => (1, v, j : nat) end
  | inr (w, j) => (2, letters_of w, j : nat) end%N.
Lemma name_inj : injective name.
Proof.
have whole (x y : res_read H L) : rcons (letters_of (tagged x).1) (tagged x).2.+1
    = rcons (letters_of (tagged y).1) (tagged y).2.+1 -> x = y.
  case: x y => t [v h] [t' [v' h']] /= /rcons_inj[/letters_of_inj e /ord_inj eh].
  have tt : t = t' by apply: val_inj => /=; rewrite -(size_tuple v) -(size_tuple v') e.
  by case: t' / tt v' e => v' e; rewrite eh (val_inj e : v = v').
move=> [[w j]|[w j]] [[w' j']|[w' j']] /=; try by case: (split _).
  move=> e; have [ew ej] : w = w' /\ split j = split j'.
    by move: e; case: (split j) => k; case: (split j') => k' [] // /whole -> /ord_inj ->.
  by rewrite ew -(splitK j) ej splitK.
by case=> /letters_of_inj/val_inj -> /ord_inj ->.
Qed.
(* the rows of the ones of a column *)
Let rows (c : res_column H d dout L) : seq nat := match c with
  | inl (x, j) => follow s m 0 (letters_of (tagged x).1) (match split j with
      | inl j => oQ o (tag x) (tagged x).2 j | inr j => oK o (tag x) (tagged x).2 j end)
  | inr (w, j) => follow s m 0 (letters_of w) (oU o j) end.
Lemma rows_count i c : res_Rall L hostR outR i (enum_rank c) = (count_mem (i : nat) (rows c))%:R.
Proof.
have one n (w : seq (option 'I_H)) f (j : 'I_n) :
    (res_wprod (values hostR) 0 w *m mof Z0 (inject R) m n (dense m n f)) i j
    = (count_mem (i : nat) (follow s m 0 (letters_of w) (f j)))%:R.
  transitivity (counts (follow s m 0 (letters_of w) (f j)) i 0); last by rewrite mxE.
  by rewrite -res_wprod_counts -mof_dense [LHS]mxE [RHS]mxE; apply: eq_bigr => k _; rewrite [in RHS]mxE.
by rewrite mxE enum_rankK; case: c => [[x j]|[w j]] /=; rewrite ?one //; case: (split j) => k; rewrite one.
Qed.

Theorem triangular_rank inv : triangular inv ->
  forall y : 'cV[R]_#|res_column H d dout L|, res_Rall L hostR outR *m y = 0 -> y = 0.
Proof.
case/andP => /allP okQK /allP okU y Ry.
have ok c : pivots inv (name c) (rows c).
  case: c => [[[t [w h]] j]|[w j]] /=; last first.
    have wm := letters_mem w; rewrite size_tuple in wm.
    by have /allP := okU _ wm; apply; rewrite mem_iota /=.
  have /allP okl := okQK (t : nat) ltac:(by rewrite mem_iota /=).
  have wm := letters_mem w; rewrite size_tuple in wm.
  have /allP okh := okl _ wm; have /allP okj := okh (h : nat) ltac:(by rewrite mem_iota /=).
  by case: (split j) => j'; have /andP[] := okj (j' : nat) ltac:(by rewrite mem_iota /=).
suff y0 n c : (number (name c) < n)%N -> y (enum_rank c) 0 = 0.
  by apply/colP => c; rewrite -(enum_valK c) (y0 _ _ (leqnn _)) mxE.
elim: n c => // n IH c cn.
have /andP[/eqP once _] := ok c.
have /hasP[a ac /andP[am /eqP at_a]] : has (fun a => (a < m)%N && (nth nowhere inv a == name c)) (rows c).
  by rewrite has_count once.
have a1 : count_mem a (rows c) = 1%N.
  apply/eqP; rewrite eqn_leq -has_count has_pred1 ac andbT -once; apply: sub_count => x /= /eqP ->.
  by rewrite am at_a eqxx.
have := congr1 (fun A : 'cV[R]_m => A (Ordinal am) 0) Ry; rewrite !mxE (bigD1 (enum_rank c)) //=.
rewrite rows_count /= a1 mul1r big1 ?addr0 // => c'; rewrite -(enum_valK c') (inj_eq enum_rank_inj) => ne.
rewrite rows_count /=; case: (posnP (count_mem a (rows (enum_val c')))) => [->|]; first by rewrite mul0r.
rewrite -has_count has_pred1 => ac'; have /andP[_ /allP/(_ a ac')] := ok (enum_val c').
rewrite leqNgt am at_a /= => /or3P[/eqP e|/eqP|lt].
- by rewrite (name_inj e) eqxx in ne.
- by case: (c) => [[x j]|[w j]] //=; case: (split j).
by rewrite IH ?mulr0 // (leq_trans lt).
Qed.

End Streamed.

(* tied hosts and tied targets *)
Section Reduced.
Variables (fQ fK fV : nat -> nat -> seq nat) (fU : nat -> seq nat) (H d dout m L : nat) (R : ringType).
Let o := Ones (fun=> fQ) (fun=> fK) (fun=> fV) fU.
Notation hostR := (host Z0 (inject R) H d m (ones_head o d m)).
Notation outR := (out Z0 (inject R) dout m (ones_out o dout m)).
Notation counts := (counts m R).
Lemma lands_serve n (f : code -> 'cV[R]_n) inv :
  exists E : 'M[R]_(n, m), forall c xs, lands m inv c xs -> E *m counts xs = f c.
Proof.
exists (\matrix_(i, a) f (nth (3, [::], 0)%N inv a) i 0) => c [|a []] //= /andP[am /eqP <-].
apply/colP => i; rewrite mxE (bigD1 (Ordinal am)) //= big1 ?addr0 => [|k /negbTE ne].
  by rewrite !mxE /= eqxx mulr1.
by rewrite !mxE /= addn0 -val_eqE /= eq_sym in ne *; rewrite ne mulr0.
Qed.
Notation nats := (map (@nat_of_ord H)).
Lemma natsK : pcancel nats (fun w => Some (pmap insub w : seq 'I_H)).
Proof. by move=> w; congr Some; elim: w => //= h w ->; rewrite valK. Qed.
Let ords (w : seq nat) : seq 'I_H := pmap insub w.
Lemma ordsK w : ords (nats w) = w. Proof. by have [] := natsK w. Qed.

Theorem reduced_serves inv din D (WE : 'M[R]_(din, D)) (lay : layer R H d D) (WU : 'M[R]_(D, dout)) :
  reduced o H d dout m L inv -> exists E : 'M[R]_(din, m), E *m res_Rall L hostR outR = WE *m res_Rall L (fun=> lay) WU.
Proof.
case/andP => /allP okQK /allP okU; pose P (w : seq 'I_H) := WE *m wprod (values (fun=> lay)) 0 w.
pose reads (w : seq nat) (j : nat) (B : 'I_H -> 'M[R]_(D, d)) : 'cV[R]_din :=
  if rev (ords w) is h :: r then if insub j is Some j then col (j : 'I_d) (P (rev r) *m B h) else 0 else 0.
pose f (c : code) : 'cV[R]_din := let: (k, w, j) := c in match k with
  | 0%N => reads w j (lQ lay) | 1%N => reads w j (lK lay)
  | _ => if insub j is Some j then col (j : 'I_dout) (P (ords w) *m WU) else 0 end.
have [E EP] := lands_serve f inv; exists E; rewrite !mul_res_pack.
have one n (w : seq (option 'I_H)) (g : nat -> seq nat) (j : 'I_n) (c : code) i : lands m inv c (follow o m 0 (nats (squeeze w)) (g j)) ->
    (E *m (res_wprod (values hostR) 0 w *m mof Z0 (inject R) m n (dense m n g))) i j = f c i 0.
  move=> /EP <-; rewrite -[values hostR]/(values (fun=> hostR 0%N)) res_wprod_tied -(@wprod_counts o H d) -mof_dense.
  by rewrite [in RHS]colE !mulmxA -colE [RHS]mxE.
have readsE w (h : 'I_H) (j : 'I_d) B i : reads (rcons (nats w) h) j B i 0 = (P w *m B h) i j.
  rewrite /reads -map_rcons ordsK rev_rcons revK insubT ?ltn_ord // => jd.
  by rewrite mxE; congr (_ i _); apply: val_inj.
have sq l (w : l.-tuple (option 'I_H)) : (l < L)%N -> size (squeeze w) \in iota 0 L.
  by move=> lL; rewrite mem_iota /= (leq_ltn_trans (size_squeeze w)) // size_tuple.
have nw (w : seq 'I_H) : nats w \in words H (size w) by exact: words_mem.
apply: eq_res_pack => [l w h lL|l w h lL|w]; apply/matrixP => i j.
- have /allP/(_ _ (nw _))/allP/(_ (h : nat) ltac:(by rewrite mem_iota /=)) := okQK _ (sq _ w lL).
  move=> /allP/(_ (j : nat) ltac:(by rewrite mem_iota /=))/andP[ok _].
  by rewrite (one _ _ _ _ _ _ ok) /f readsE /P -!mulmxA res_wprod_tied.
- have /allP/(_ _ (nw _))/allP/(_ (h : nat) ltac:(by rewrite mem_iota /=)) := okQK _ (sq _ w lL).
  move=> /allP/(_ (j : nat) ltac:(by rewrite mem_iota /=))/andP[_ ok].
  by rewrite (one _ _ _ _ _ _ ok) /f readsE /P -!mulmxA res_wprod_tied.
have sL : size (squeeze w) \in iota 0 L.+1.
  by rewrite mem_iota /= ltnS (leq_trans (size_squeeze w)) // size_tuple.
have /allP/(_ _ (nw _))/allP/(_ (j : nat) ltac:(by rewrite mem_iota /=)) ok := okU _ sL.
rewrite (one _ _ _ _ _ _ ok) /f ordsK insubT ?ltn_ord // => jd.
by rewrite mxE /P -!mulmxA res_wprod_tied; congr (_ i _); apply: val_inj.
Qed.
End Reduced.
