(* Wide heads: a host of fewer than M dimensions for all targets, by attention-matching (Theorem P).    *)
(*                                                                                                      *)
(* g subspaces of dimension d in dimension d_in meet in at least g d - (g - 1) d_in dimensions. So      *)
(* heads whose query matrices have columns in common can read one coordinate.                           *)
(*                                                                                                      *)
(*   sharing_host       a tied host that moves groups of columns along head words                       *)
(*   sharing_matches    it serves every target whose forms are products of columns of the groups        *)
(*   avoid              a space is no union of n proper subspaces, over a field of more than n + 1      *)
(*   choose             one vector for each set of heads, in the spaces of its heads, independent at    *)
(*                      each head                                                                       *)
(*   factors            so W_Q = X B for each head, X with columns in common as es says                 *)
(*   sharing_universal  es lists sets of two or more heads; for each head h and g > 1 at most           *)
(*                      max(0, g d - (g - 1) d_in) of those with g or more heads contain h. Then a      *)
(*                      tied {0,1} host of m = M - (1 + H + ... + H^(L-1)) sum (|e| - 1), and every     *)
(*                      larger m, serves all untied targets by attention-matching                       *)
(*   least_iff_narrow   so for H >= 2, d <= d_in: M is the least m if and only if 2 d <= d_in (with       *)
(*                      Theorem N)                                                                      *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words Selection Emulation Trie SharedKey SharedQuery.
From Utfproof Require Import Dimensions NarrowHeads.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

(* A tied host that moves whole groups of columns along head words *)

Section Groups.
Variables (R : comRingType) (H d din L' k : nat) (G : finType) (cQ cK : 'I_H -> 'I_d -> G) (h0 : 'I_H).
Notation L := L'.+1.

(* a group for every word of length less than L, a block of d_in for every word of length L, *)
(* and k coordinates without use                                                              *)
Definition sharing_coord := [finType of option (word H L') * G + L.-tuple 'I_H * 'I_din + 'I_k].
Notation C := sharing_coord.
Notation m := #|C|.

Lemma card_sharing_coord : m = ((\sum_(t < L) H ^ t) * #|G| + H ^ L * din + k)%N.
Proof.
rewrite !card_sum !card_prod card_option card_word card_tuple !card_ord; congr (_ * _ + _ + _)%N.
rewrite big_ord_recl /= word_count_sum big_distrr /= add1n; congr (_.+1).
by apply: eq_bigr => t _; rewrite expnS.
Qed.

Definition sharing_relV (h : 'I_H) : rel C := fun u v =>
  match u, v with
  | inl (inl (x, a)), inl (inl (y, b)) => (letters0 x == h :: letters0 y) && (a == b)
  | inl (inr (x, i)), inl (inr (y, j)) => (tval x == take L (h :: y)) && (i == j)
  | _, _ => false
  end.

Definition sharing_host : layer R H d m :=
  Layer (fun h => sel R (fun j => inl (inl (None, cQ h j)) : C))
        (fun h => sel R (fun j => inl (inl (None, cK h j)) : C))
        (fun h => rel_mx R (sharing_relV h)).
Definition sharing_out : 'M[R]_(m, din) := sel R (fun r => inl (inr (padded L h0 [::], r)) : C).

Lemma sharing_read (c : 'I_d -> G) (w : seq 'I_H) : (size w <= L')%N ->
  wprod (fun=> lV sharing_host) 0 w *m sel R (fun j => inl (inl (None, c j)) : C)
  = sel R (fun j => inl (inl (stream_at L' w, c j)) : C).
Proof.
move=> wL; have <- : stream_at L' [::] = None :> option (word H L').
  by apply: letters0_inj; rewrite letters_stream_at.
rewrite (@wprod_sel _ _ _ _ _ (fun s j => inl (inl (stream_at L' s, c j)) : C) 0) //.
move=> a s [[[x i]|[x i]]|x] j //= sw; have sL := leq_trans sw wL.
have e : letters0 (stream_at L' (a :: s)) = a :: s by rewrite letters_stream_at.
by rewrite letters_stream_at 1?ltnW // -[in LHS]e (inj_eq (@letters0_inj _ _)).
Qed.

Lemma sharing_output (w : seq 'I_H) :
  wprod (fun=> lV sharing_host) 0 w *m sharing_out = sel R (fun r => inl (inr (padded L h0 w, r)) : C).
Proof.
rewrite /sharing_out (@wprod_sel _ _ _ _ _ (fun s j => inl (inr (padded L h0 s, j)) : C) 0) //.
by move=> a s [[[x i]|[x i]]|x] j // _; rewrite [LHS]/sharing_relV -padded_cons.
Qed.

(* The program of a target whose forms are products of columns of the group: z l a is column a in layer l *)

Variables (T : nat -> layer R H d din) (z : nat -> G -> 'cV[R]_din).
Definition columns (c : 'I_H -> 'I_d -> G) l h : 'M[R]_(din, d) := \matrix_(i, j) z l (c h j) i 0.

Definition sharing_program : 'M[R]_(din, m) := program (fun i (u : C) => match u with
  | inl (inl (x, a)) => (wprod (values T) 0 (letters0 x) *m z (size (letters0 x)) a) i 0
  | inl (inr (x, r)) => wprod (values T) 0 x i r
  | inr _ => 0 end).

Lemma sharing_program_read (c : 'I_H -> 'I_d -> G) l (w : l.-tuple 'I_H) h : (l < L)%N ->
  sharing_program *m wprod (fun=> lV sharing_host) 0 w *m sel R (fun j => inl (inl (None, c h j)) : C)
  = wprod (values T) 0 w *m columns c l h.
Proof.
move=> lL; rewrite -mulmxA sharing_read ?size_tuple // program_sel; apply/matrixP => i j.
rewrite mxE letters_stream_at ?size_tuple // !mxE; apply: eq_bigr => a _; by rewrite mxE.
Qed.

Lemma sharing_matches : (forall l h, (l < L)%N -> columns cQ l h *m (columns cK l h)^T = form T l h) ->
  matches_logits L (fun=> sharing_host) sharing_out T sharing_program.
Proof.
move=> eF; split=> [l w v h lL|w].
  rewrite !sharing_program_read // !trmx_mul !mulmxA -(mulmxA (wprod _ _ _)) eF //.
  by rewrite /form !mulmxA.
rewrite -mulmxA sharing_output program_sel; apply/matrixP => i r; rewrite mxE.
by rewrite paddedE ?size_tuple // subnn cats0.
Qed.

End Groups.

(* Columns in common *)

Section Choice.
Variables (F : fieldType) (H d b : nat).
Notation vec := 'cV[F]_b.

(* a space is no union of proper subspaces, if the field is large enough *)
Lemma avoid (s : seq F) (U : {vspace vec}) (I : eqType) (r : seq I) (W : I -> {vspace vec}) :
  uniq s -> (size r < size s)%N -> (forall h, h \in r -> ~~ (U <= W h)%VS) ->
  exists2 x, x \in U & forall h, h \in r -> x \notin W h.
Proof.
move=> us; elim: r => [|h r IH] rs out; first by exists 0; rewrite ?mem0v.
have [|k kr|x xU xr] := IH; [exact: ltnW|by apply: out; rewrite inE kr orbT|].
case: (boolP (x \in W h)) => [xh|xh]; last first.
  by exists x => // k; rewrite inE => /orP[/eqP ->|/xr].
have /subvPn[u uU uh] := out h (mem_head _ _).
have mem t : x + t *: u \in U by rewrite memvD ?memvZ.
have offh t : t != 0 -> x + t *: u \notin W h.
  by move=> t0; rewrite rpredDl // rpredZeq negb_or t0.
pose S := [seq t <- s | t != 0]; have uS : uniq S by rewrite filter_uniq.
have sS : (size r < size S)%N.
  rewrite size_filter -ltnS; apply: leq_trans rs _.
  rewrite -(count_predC (fun t => t != 0) s) -addn1 leq_add2l.
  rewrite (eq_count (a2 := pred1 0)) => [|t]; last by rewrite /= negbK.
  by rewrite (count_uniq_mem 0 us); case: (0 \in s).
case: (boolP (has (fun t => ~~ has (fun k => x + t *: u \in W k) r) S)) => [/hasP[t]|/hasPn bad].
  rewrite mem_filter => /andP[t0 _] /hasPn ok; exists (x + t *: u) => // k.
  by rewrite inE => /orP[/eqP ->|/ok //]; exact: offh.
pose f t := find (fun k => x + t *: u \in W k) r.
have fr t : t \in S -> (f t < size r)%N by move/bad; rewrite negbK has_find.
have inj : {in S &, injective f}.
  move=> t t' tS t'S e; apply/eqP; apply: contraT; rewrite -subr_eq0 => tt'.
  have := bad t tS; have := bad t' t'S; rewrite !negbK => /(nth_find h) + /(nth_find h).
  rewrite -/(f t) -/(f t') -e => in' in1; set k := nth h r (f t) in in' in1.
  have kr : k \in r by apply/mem_nth/fr.
  have uk : u \in W k.
    have := rpredB in1 in'; rewrite opprD addrACA subrr add0r -scalerBl rpredZeq (negPf tt') //.
  by have := xr k kr; move: in1; rewrite rpredDr ?memvZ // => ->.
have := uniq_leq_size (s1 := map f S) (s2 := iota 0 (size r)).
rewrite map_inj_in_uniq // size_map size_iota leqNgt sS /= => /(_ uS) no; suff: false by []; apply: no.
by move=> _ /mapP[t tS ->]; rewrite mem_iota fr.
Qed.

(* a free family of vectors of V is part of a basis *)
Lemma complete (V : {vspace vec}) (xs : seq vec) : free xs -> {subset xs <= V} ->
  exists2 ys, free (xs ++ ys) & <<xs ++ ys>>%VS = V.
Proof.
move=> fx /span_subvP xV; exists (vbasis (V :\: <<xs>>)); last first.
  by rewrite span_cat (span_basis (vbasisP _)) addvC addv_diff; apply/addv_idPl.
apply: (@basis_free _ _ (<<xs>> + (V :\: <<xs>>))); apply: cat_basis.
- by apply/directv_addP; rewrite capvC capv_diff.
- by rewrite /basis_of eqxx.
- exact: vbasisP.
Qed.

Lemma enlarge (U : {vspace vec}) : (\dim U <= d)%N -> (d <= b)%N ->
  exists2 V : {vspace vec}, (U <= V)%VS & \dim V = d.
Proof.
move=> Ud db; have [||ys fr sp] := @complete fullv (vbasis U).
- exact: basis_free (vbasisP U).
- by move=> x _; exact: memvf.
have sz : size (vbasis U ++ ys) = b.
  by rewrite -(eqP fr) sp dimvf /Vector.dim /= muln1.
exists <<take d (vbasis U ++ ys)>>%VS.
  rewrite -{1}(span_basis (vbasisP U)) take_cat size_tuple ltnNge Ud /= span_cat addvSl //.
move: fr; rewrite -{1}(cat_take_drop d (vbasis U ++ ys)) => /catl_free/eqP ->.
by rewrite size_takel // sz.
Qed.

Variable V : 'I_H -> {vspace vec}.
Hypothesis dimV : forall h, \dim (V h) = d.

Lemma dim_common (r : seq 'I_H) : (d * size r + b <= \dim (\bigcap_(h <- r) V h)%VS + b * size r)%N.
Proof.
elim: r => [|h r IH]; first by rewrite big_nil muln0 muln0 addn0 dimvf /Vector.dim /= muln1.
rewrite big_cons; set W := (\bigcap_(h <- r) V h)%VS in IH *.
have := dimv_sum_cap (V h) W; rewrite dimV => e.
have : (\dim (V h + W) <= b)%N by have := dimvS (subvf (V h + W)); rewrite dimvf /Vector.dim /= muln1.
rewrite -(leq_add2l (\dim (V h :&: W))) => le.
rewrite !mulnS -addnA (leq_trans (leq_add (leqnn d) IH)) // addnA -e.
by rewrite [leqRHS]addnA leq_add2r addnC.
Qed.

(* the vectors of zip es xs that belong to head h *)
Definition at_head (h : 'I_H) (z : seq ({set 'I_H} * vec)) : seq vec :=
  map snd (filter (fun p : {set 'I_H} * vec => h \in p.1) z).

Lemma size_at_head h es xs : size xs = size es ->
  size (at_head h (zip es xs)) = count (fun e : {set 'I_H} => h \in e) es.
Proof.
move=> e; rewrite size_map size_filter -[in RHS](@unzip1_zip _ _ es xs) ?e // count_map.
by apply: eq_count.
Qed.

(* one vector for each member of es, in all spaces of its heads, independent at each head *)
Lemma choose (s : seq F) (es : seq {set 'I_H}) : uniq s -> (H < size s)%N ->
  sorted (fun e e' : {set 'I_H} => #|e| <= #|e'|)%N es -> (forall e, e \in es -> (0 < #|e|)%N) ->
  (forall e h, e \in es -> h \in e ->
     count (fun e' : {set 'I_H} => (h \in e') && (#|e| <= #|e'|)) es <= #|e| * d - #|e|.-1 * b)%N ->
  exists2 xs, size xs = size es &
    forall h, free (at_head h (zip es xs)) /\ {subset at_head h (zip es xs) <= V h}.
Proof.
move=> us Hs; elim: es => [|e es IH] srt pos cnt; first by exists [::] => // h; rewrite /at_head nil_free.
have tr : transitive (fun e e' : {set 'I_H} => #|e| <= #|e'|)%N by move=> x y z; apply: leq_trans.
have [| |e' h e'es he'|xs sx xsP] := IH.
- by move: srt; rewrite /= path_sortedE // => /andP[].
- by move=> e' e'es; apply: pos; rewrite inE e'es orbT.
- by apply: leq_trans (cnt e' h _ he'); rewrite ?inE ?e'es ?orbT //= leq_addl.
have ge e' : e' \in es -> (#|e| <= #|e'|)%N.
  by move: srt; rewrite /= path_sortedE // => /andP[/allP al _] /al.
have [||h he|x xU xout] := @avoid s (\bigcap_(h <- enum e) V h)%VS _ (enum e)
  (fun h => <<at_head h (zip es xs)>>%VS).
- exact: us.
- by rewrite -cardE (leq_ltn_trans _ Hs) // -[X in (_ <= X)%N]card_ord max_card.
- have {}he : h \in e by rewrite mem_enum in he.
  apply: contraTN (cnt e h (mem_head _ _) he) => /dimvS le; rewrite -ltnNge /= he leqnn.
  have -> : count (fun e' : {set 'I_H} => (h \in e') && (#|e| <= #|e'|)%N) es
      = count (fun e' : {set 'I_H} => h \in e') es.
    by apply: eq_in_count => e' /ge ->; rewrite andbT.
  rewrite add1n ltnS -(size_at_head h sx); apply: leq_trans (leq_trans le (dim_span _)).
  rewrite leq_subLR; have := dim_common (enum e); rewrite -cardE mulnC => le'.
  have e0 := pos e (mem_head _ _); rewrite -(leq_add2r b) addnAC (leq_trans le') //.
  by rewrite addnC leq_add2r -{1}(prednK e0) mulnC mulSn addnC.
exists (x :: xs); first by rewrite /= sx.
move=> h; have [fh sh] := xsP h; rewrite /at_head /=; case: ifP => // he.
have hin : h \in enum e by rewrite mem_enum.
rewrite /= free_cons fh (xout h hin); split=> // y; rewrite inE => /orP[/eqP ->|/sh //].
by move: xU; rewrite (big_rem h hin) /= memv_cap => /andP[].
Qed.

End Choice.

(* Which column a reader has: the members of es with head h come first *)

Section Columns.
Variables (H d : nat) (es : seq {set 'I_H}).

Definition members (h : 'I_H) : seq 'I_(size es) :=
  filter (fun i : 'I_(size es) => h \in nth set0 es i) (enum 'I_(size es)).
Definition place_of (p : 'I_H * 'I_d) : 'I_(size es) + 'I_H * 'I_d :=
  if ohead (drop p.2 (members p.1)) is Some i then inl i else inr p.
Definition query_column := [finType of {x | x \in codom place_of}].

Lemma size_members h : size (members h) = count (fun e : {set 'I_H} => h \in e) es.
Proof.
rewrite size_filter -[in RHS](mkseq_nth set0 es) /mkseq [RHS]count_map -val_enum_ord [RHS]count_map.
by apply: eq_count.
Qed.

Lemma sum_members : (\sum_(h < H) size (members h) = \sum_(e <- es) #|e|)%N.
Proof.
rewrite (eq_bigr _ (fun h _ => size_members h)); elim: (es) => [|e r IH] /=; first by rewrite big_nil big1.
by rewrite big_cons big_split /= IH; congr (_ + _)%N; rewrite -sum1_card [RHS]big_mkcond.
Qed.

Lemma card_query_column : (forall h, size (members h) <= d)%N ->
  (#|query_column| + \sum_(e <- es) #|e| <= size es + H * d)%N.
Proof.
move=> le_d; rewrite card_sig.
pose P := [pred p : 'I_H * 'I_d | (p.2 < size (members p.1))%N].
pose A : {set 'I_(size es) + 'I_H * 'I_d} :=
  [set inl i | i in [set: 'I_(size es)]] :|: [set inr p | p in [predC P]].
have sub : codom place_of \subset A.
  apply/subsetP => _ /codomP[p ->]; rewrite /place_of; case e : (drop _ _) => [|i r] /=; rewrite inE.
    apply/orP; right; apply: imset_f; rewrite inE /= -leqNgt.
    by have := congr1 size e; rewrite size_drop => /eqP; rewrite subn_eq0.
  by apply/orP; left; apply: imset_f; rewrite inE.
have cP : #|P| = (\sum_(e <- es) #|e|)%N.
  rewrite -sum_members -sum1_card big_mkcond /=.
  rewrite -(pair_bigA _ (fun h (j : 'I_d) => if (j < size (members h))%N then 1%N else 0%N)) /=.
  apply: eq_bigr => h _; rewrite -big_mkcond /= (big_ord_narrow (le_d h)) sum1_card card_ord //.
rewrite -cP; have <- : (#|P| + #|[predC P]| = H * d)%N by rewrite cardC card_prod !card_ord.
rewrite [leqRHS]addnCA [leqLHS]addnC leq_add2l.
apply: leq_trans (subset_leq_card sub) _; apply: leq_trans (leq_card_setU _ _) _.
by apply: leq_add; apply: leq_trans (leq_imset_card _ _) _; rewrite ?cardsT ?card_ord.
Qed.

End Columns.

(* The columns of each target *)

Section Serve.
Variables (F : fieldType) (H d b : nat) (es : seq {set 'I_H}).
Notation cQ := (fun (h : 'I_H) (j : 'I_d) => Sub (place_of es (h, j)) (codom_f _ _) : query_column d es).

Lemma factors (s : seq F) (W : 'I_H -> 'M[F]_(b, d)) : uniq s -> (H < size s)%N -> (d <= b)%N ->
  sorted (fun e e' : {set 'I_H} => #|e| <= #|e'|)%N es -> (forall e, e \in es -> (0 < #|e|)%N) ->
  (forall e h, e \in es -> h \in e ->
     count (fun e' : {set 'I_H} => (h \in e') && (#|e| <= #|e'|)) es <= #|e| * d - #|e|.-1 * b)%N ->
  exists (z : query_column d es -> 'cV[F]_b) (B : 'I_H -> 'M[F]_d), forall h,
    W h = (\matrix_(i, j) z (cQ h j) i 0) *m B h.
Proof.
move=> us Hs db srt pos cnt.
have /fin_all_exists2[V UV dimV] (h : 'I_H) : exists2 V : {vspace 'cV[F]_b},
    (<<[seq col j (W h) | j <- enum 'I_d]>> <= V)%VS & \dim V = d.
  apply: enlarge db; apply: leq_trans (dim_span _) _.
  by rewrite size_map -cardE card_ord.
have [xs sx xsP] := choose dimV us Hs srt pos cnt.
have /fin_all_exists[ys ysP] (h : 'I_H) : exists ys, free (at_head h (zip es xs) ++ ys)
    /\ <<at_head h (zip es xs) ++ ys>>%VS = V h.
  by have [fh /complete[//|ys]] := xsP h; exists ys.
pose cs h := at_head h (zip es xs) ++ ys h.
have sc h : size (cs h) = d by rewrite -(dimV h); have [/eqP <- ->] := ysP h.
have headE h : at_head h (zip es xs) = map (fun i : 'I_(size es) => xs`_i) (members es h).
  rewrite /at_head /members.
  have -> : zip es xs = map (fun i : 'I_(size es) => (nth set0 es i, xs`_i)) (enum 'I_(size es)).
    apply: (@eq_from_nth _ (set0, 0)) => [|i]; rewrite size_zip sx minnn.
      by rewrite size_map size_enum_ord.
    by move=> il; rewrite nth_zip // (nth_map (Ordinal il)) ?size_enum_ord // nth_enum_ord.
  by rewrite filter_map -map_comp.
pose z (x : query_column d es) : 'cV[F]_b :=
  match val x with inl i => xs`_i | inr p => (cs p.1)`_(p.2) end.
have zE h j : z (cQ h j) = (cs h)`_j.
  rewrite /z /= /place_of; case e : (drop _ _) => [|i r] //=.
  have jl : (j < size (members es h))%N by rewrite ltnNge -subn_eq0 -size_drop e.
  rewrite /cs nth_cat headE size_map jl (nth_map i) //; congr (xs`_ _).
  by have := congr1 (fun q => nth i q 0) e; rewrite nth_drop addn0 /= => ->.
exists z, (fun h => \matrix_(j, k) coord (in_tuple (cs h)) (cast_ord (esym (sc h)) j) (col k (W h))) => h.
apply/matrixP => i k; rewrite mxE.
have : col k (W h) \in <<in_tuple (cs h)>>%VS.
  have [_ /= ->] := ysP h; apply: (subvP (UV h)); apply: memv_span; apply: map_f; exact: mem_enum.
move=> /coord_span/matrixP/(_ i 0); rewrite [LHS]mxE => ->; rewrite summxE.
rewrite (reindex (cast_ord (esym (sc h)))) /=; last first.
  by exists (cast_ord (sc h)) => j _; rewrite ?cast_ordK ?cast_ordKV.
by apply: eq_bigr => j _; rewrite !mxE zE mulrC.
Qed.

End Serve.

(* Theorem P. es: the sets of heads that share a column of their queries *)
Theorem sharing_universal (F : fieldType) (H d din L m : nat) (s : seq F) (es : seq {set 'I_H}) :
  uniq s -> (H < size s)%N -> (0 < L)%N -> (0 < H)%N -> (d <= din)%N ->
  (forall e, e \in es -> (1 < #|e|)%N) ->
  (forall h g, (1 < g)%N ->
     count (fun e : {set 'I_H} => (h \in e) && (g <= #|e|)) es <= g * d - g.-1 * din)%N ->
  (matching_dimension H L d din - (\sum_(t < L) H ^ t) * (\sum_(e <- es) #|e|.-1) <= m)%N ->
  exists (S : layer F H d m) (U : 'M[F]_(m, din)),
  [/\ forall h, [/\ is01 (lQ S h), is01 (lK S h) & is01 (lV S h)], is01 U &
      forall T : transformer F H d din, exists E : 'M[F]_(din, m),
        matches_logits L (fun=> S) U (layers T) E /\ emulates_logits L (fun=> S) U (layers T) E].
Proof.
move=> us Hs L0 H0 ddin two cnt.
pose r := sort (fun e e' : {set 'I_H} => #|e| <= #|e'|)%N es.
have pr : perm_eq r es by rewrite perm_sort.
have srt : sorted (fun e e' : {set 'I_H} => #|e| <= #|e'|)%N r.
  by apply: sort_sorted => x y; exact: leq_total.
rewrite -(perm_big _ pr) /=.
have {}two e : e \in r -> (1 < #|e|)%N by rewrite (perm_mem pr); exact: two.
have {}cnt h g : (1 < g)%N ->
    (count (fun e : {set 'I_H} => (h \in e) && (g <= #|e|)) r <= g * d - g.-1 * din)%N.
  by rewrite (permP pr); exact: cnt.
clearbody r; clear es pr; case: L L0 => // L' _; set W := (\sum_(t < L'.+1) H ^ t)%N => lem.
pose G := [finType of query_column d r + 'I_H * 'I_d].
have card_G : (W * #|G| + H ^ L'.+1 * din <= m)%N.
  apply: leq_trans lem; rewrite /matching_dimension word_count_sum -/W.
  have le_d h : (size (members r h) <= d)%N.
    have := cnt h 2%N isT; have -> : count (fun e : {set 'I_H} => (h \in e) && (1 < #|e|)%N) r
      = count (fun e : {set 'I_H} => h \in e) r by apply: eq_in_count => e /two ->; rewrite andbT.
    by move=> le; rewrite size_members (leq_trans le) // leq_subLR mul1n mul2n -addnn leq_add2r.
  have := card_query_column le_d; rewrite card_sum card_prod !card_ord.
  have -> : (\sum_(e <- r) #|e| = size r + \sum_(e <- r) #|e|.-1)%N.
    rewrite -sum1_size -big_split /= big_seq [RHS]big_seq; apply: eq_bigr => e /two e2.
    by rewrite add1n prednK // ltnW.
  rewrite addnCA leq_add2l => le; set E1 := (\sum_(e <- r) #|e|.-1)%N in le *.
  have tot : (W * E1 + (W * (#|query_column d r| + H * d) + H ^ L'.+1 * din)
      <= 2 * d * (H * W) + H ^ L'.+1 * din)%N.
    rewrite addnA leq_add2r -mulnDr (_ : 2 * d * (H * W) = W * (H * d + H * d))%N; last by ring.
    by rewrite leq_mul2l addnA leq_add2r addnC le orbT.
  by rewrite leq_subRL ?tot // (leq_trans (leq_addr _ _) tot).
rewrite -(subnKC card_G) -card_sharing_coord; move: (m - _)%N => k.
pose cQ (h : 'I_H) (j : 'I_d) : G := inl (Sub (place_of r (h, j)) (codom_f _ _) : query_column d r).
pose cK (h : 'I_H) (j : 'I_d) : G := inr (h, j).
exists (sharing_host F din L' k cQ cK), (sharing_out F din L' k G (Ordinal H0)).
split=> [h||T]; [by split; exact: is01_bool|exact: is01_bool|].
have /fin_all_exists2 : forall l : 'I_L'.+1, exists2 z : query_column d r -> 'cV[F]_din,
  True & exists B : 'I_H -> 'M[F]_d, forall h, WQ T l h = (\matrix_(i, j) z
    (Sub (place_of r (h, j)) (codom_f _ _) : query_column d r) i 0) *m B h.
  move=> l; have pos (e : {set 'I_H}) : e \in r -> (0 < #|e|)%N by move/two/ltnW.
  have [|z [B zB]] := factors (WQ T l) us Hs ddin srt pos; last by exists z => //; exists B.
  by move=> e h er _; apply: cnt (two e er).
case=> z _ zP; have /fin_all_exists[B zB] := zP.
pose zz (l : nat) (a : G) : 'cV[F]_din :=
  match a with inl x => z (inord l) x | inr p => col p.2 (WK T l p.1 *m (B (inord l) p.1)^T) end.
exists (sharing_program L' k (layers T) zz).
suff mT : matches_logits L'.+1 (fun=> sharing_host F din L' k cQ cK) (sharing_out F din L' k G (Ordinal H0))
    (layers T) (sharing_program L' k (layers T) zz).
  by split=> //; exact: matching_logits_emulates.
apply: sharing_matches => l h lL; rewrite /form /=.
have -> : columns zz cK l h = WK T l h *m (B (inord l) h)^T.
  by apply/matrixP => i j; rewrite [LHS]mxE /zz /= mxE.
have := zB (inord l) h; rewrite inordK // => ->.
by rewrite trmx_mul trmxK mulmxA; congr (_ *m _ *m _); apply/matrixP => i j; rewrite !mxE.
Qed.

(* The headline: M is the least m for all untied targets if and only if 2 d <= d_in *)
Theorem least_iff_narrow (F : fieldType) (H d din L : nat) (s : seq F) :
  uniq s -> (H < size s)%N -> (1 < H)%N -> (0 < L)%N -> (0 < d)%N -> (d <= din)%N ->
  (forall m, (exists (S : nat -> layer F H d m) (U : 'M[F]_(m, din)), universal_by_logits L S U)
     <-> (matching_dimension H L d din <= m)%N)
  <-> (2 * d <= din)%N.
Proof.
move=> us Hs H2 L0 d0 ddin; split=> [least|narrow m]; last by apply: narrow_least; rewrite ?H2.
have H0 := ltnW H2; rewrite leqNgt; apply/negP => wide.
pose e : {set 'I_H} := [set Ordinal H0; Ordinal H2]; have ce : #|e| = 2%N by rewrite cards2.
have Mpos : (0 < matching_dimension H L d din)%N.
  by rewrite addn_gt0 !muln_gt0 expn_gt0 H0 (leq_trans d0 ddin) orbT.
have Wpos : (0 < \sum_(t < L) H ^ t)%N by case: (L) L0 => // L' _; rewrite big_ord_recl.
have [|h g g1||S [U [_ _ serves]]] := @sharing_universal F H d din L
    (matching_dimension H L d din - \sum_(t < L) H ^ t) s [:: e] us Hs L0 H0 ddin.
- by move=> e'; rewrite inE => /eqP->; rewrite ce.
- rewrite /= addn0 ce; case: (ltnP 2 g) => [|g2]; first by rewrite andbF.
  have -> : g = 2%N by apply/eqP; rewrite eqn_leq g2 g1.
  by rewrite andbT mul1n (leq_trans (leq_b1 _)) // subn_gt0.
- by rewrite big_seq1 ce muln1.
have /least : exists (S : nat -> layer F H d (matching_dimension H L d din - \sum_(t < L) H ^ t))
    (U : 'M[F]_(matching_dimension H L d din - \sum_(t < L) H ^ t, din)), universal_by_logits L S U.
  by exists (fun=> S), U => T; have [E [mE _]] := serves T; exists E.
by rewrite leqNgt ltn_subrL Wpos Mpos.
Qed.
