(* Embeddings given block by block as products of the target's matrices: identities of words.              *)
(*                                                                                                         *)
(*   atom, mean            a letter (M, A, Q or K of a layer and head; transposed, inverted) and its matrix *)
(*   same_product          words that are equal after cancelling inverses (and in any order at d_in = 1)    *)
(*   covered, read_as      what a reader sees of E: the columns of one block                               *)
(*   serves_logits, serves_tied, serves_shared, serves_both   the identities of the notions, and that they *)
(*                         give an embedding for every target                                              *)
From Coq Require Import ZArith.
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words MatchingSystem Emulation Spanning SharedBounds.
From UtfproofChecker Require Import Layers Integers Hosts Triangular.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

(* --- what is executed --- *)
(* kind (0 M, 1 A, 2 Q, 3 K), layer from 0, head; transposed, inverted *)
Definition atom := (nat * nat * nat * bool * bool)%type.
Definition kind_of (a : atom) : nat := let: (k, _, _, _, _) := a in k.
Definition flip (a : atom) : atom := let: (k, l, h, t, i) := a in (k, l, h, ~~ t, i).
Definition flipped (w : seq atom) : seq atom := rev (map flip w).
Definition undo (a b : atom) : bool :=
  let: (k, l, h, t, i) := a in let: (k', l', h', t', i') := b in
  [&& k == 0%N, k' == 0%N, l == l', h == h', t == t' & i != i'].
Fixpoint cancel (w : seq atom) : seq atom := if w is a :: w' then
  if cancel w' is b :: v then if undo a b then v else a :: b :: v else [:: a] else [::].
Definition upright (a : atom) : atom := let: (k, l, h, _, i) := a in (k, l, h, false, i).
Definition below (a b : atom) : bool :=
  let: (k, l, h, _, i) := a in let: (k', l', h', _, i') := b in
  (k < k')%N || (k == k') && ((l < l')%N || (l == l') && ((h < h')%N || (h == h') && (~~ i || i'))).
Definition normal (n : nat) (w : seq atom) : seq atom := cancel (if n == 1%N then sort below (map upright w) else w).
Definition same_product (n : nat) (u v : seq atom) : bool := normal n u == normal n v.
(* only these may be inverted *)
Definition lawful (can : nat -> nat -> bool) (w : seq atom) : bool :=
  all (fun a => let: (k, l, h, _, i) := a in (k < 2)%N && (~~ i || (k == 0%N) && can l h)) w.

Section Program.
Variables (H d n m L : nat) (o : ones) (tied : bool) (can : nat -> nat -> bool).
Definition block := (nat * seq atom)%type.
Definition ends (w : seq atom) : bool := if w is a :: w' then (1 < kind_of (last a w'))%N else false.
Definition wide (w : seq atom) : nat := if ends w then d else n.
Fixpoint at_coordinate (bs : seq block) (a : nat) : option (seq atom * nat) := if bs is b :: bs' then
  if (b.1 <= a)%N && (a < b.1 + wide b.2)%N then Some (b.2, (a - b.1)%N) else at_coordinate bs' a else None.
Definition covered (bs : seq block) (xs : seq nat) : seq (seq atom * nat) :=
  pmap (at_coordinate bs) [seq a <- xs | (a < m)%N].
Definition read_as (bs : seq block) (columns : nat) (xs : nat -> seq nat) : option (seq atom) :=
  if covered bs (xs 0%N) is [:: (x, _)] then
    if (wide x <= columns)%N && all (fun j => covered bs (xs j) == if (j < wide x)%N then [:: (x, j)] else [::]) (iota 0 columns)
    then Some x else None
  else None.
Definition along (w : seq nat) : seq atom :=
  [seq (0%N, (if tied then 0%N else ih.1), ih.2, false, false) | ih <- zip (iota 0 (size w)) w].
Definition reads_word (bs : seq block) (columns : nat) (xs : nat -> seq nat) (wanted : seq atom -> bool) : bool :=
  if read_as bs columns xs is Some x then lawful can x && wanted x else false.
Definition outputs (bs : seq block) : bool := all (fun w =>
  reads_word bs n (fun j => follow o m 0 w (oU o j)) (fun x => same_product n x (along w))) (words H L).
Definition serves_logits (bs : seq block) : bool := (n <= d)%N && outputs bs && all (fun l => all (fun h =>
    all (fun w => reads_word bs d (fun j => follow o m 0 w (oQ o l h j)) (fun x =>
      all (fun v => reads_word bs d (fun j => follow o m 0 v (oK o l h j)) (fun y =>
        same_product n (x ++ flipped y)
          (along w ++ (1%N, (if tied then 0%N else l), h, false, false) :: flipped (along v)))) (words H l)))
      (words H l)) (iota 0 H)) (iota 0 L).
(* E and U free: which coordinates of E meet which of U *)
Definition meeting (bs cs : seq block) (w : seq nat) : seq (seq atom * nat * (seq atom * nat)) :=
  flatten [seq if at_coordinate cs c is Some y then [seq (x, y) | x <- covered bs (follow o m 0 w [:: c])] else [::]
    | c <- iota 0 m].
Definition serves_both (bs cs : seq block) : bool := all (fun w =>
  let ps := meeting bs cs w in
  if ps is ((x, _), (y, _)) :: _ then
    [&& lawful can x, lawful can y, ps == [seq ((x, j), (y, j)) | j <- iota 0 n] & same_product n (x ++ y) (along w)]
  else false) (words H L).
End Program.

(* --- what it means --- *)
Section Meaning.
Variables (F : fieldType) (H d n m L : nat) (o : ones) (tied : bool) (can : nat -> nat -> bool).
Variable T : transformer F H d n.
Hypothesis can_invert : forall l (h : 'I_H), can l h -> lV (layers T l) h \in unitmx.
Hypothesis looped_T : tied -> looped T.
Definition mean (a : atom) : 'M[F]_n := let: (k, l, h, t, i) := a in
  let X := if insub h is Some h then if k == 0%N then lV (layers T l) (h : 'I_H) else form (layers T) l h else 1%:M in
  let X := if i then invmx X else X in if t then X^T else X.
Definition product (w : seq atom) : 'M[F]_n := foldr (fun a X => mean a *m X) 1%:M w.
Lemma product_cat u v : product (u ++ v) = product u *m product v.
Proof. by elim: u => [|a u IH] /=; rewrite ?mul1mx // IH mulmxA. Qed.
Lemma mean_flip a : mean (flip a) = (mean a)^T.
Proof. by case: a => [[[[k l] h] [|]] i] //=; rewrite trmxK. Qed.
Lemma product_flipped w : product (flipped w) = (product w)^T.
Proof.
rewrite /flipped; elim: w => [|a w IH] /=; first by rewrite trmx1.
by rewrite rev_cons -cats1 product_cat IH /= mulmx1 mean_flip trmx_mul.
Qed.
Lemma mean_undo a b : lawful can [:: a] -> lawful can [:: b] -> undo a b -> mean a *m mean b = 1%:M.
Proof.
case: a => [[[[k l] h] t] i]; case: b => [[[[k' l'] h'] t'] i'] /=; rewrite !andbT.
move=> /andP[_ oka] /andP[_ okb] /and5P[/eqP-> /eqP-> /eqP el /eqP eh /andP[/eqP et ne]].
rewrite -el -eh -et /= in okb *; rewrite /= in oka.
case: insubP => [a ah eah|_]; last by move: ne; case: (i); case: (i') => //= _; rewrite ?invmx1; case: (t); rewrite ?trmx1 mulmx1.
have cl : can l h by move: ne oka okb; case: (can l h); rewrite // !andbF; case: (i); case: (i').
have un : lV (layers T l) a \in unitmx by apply: can_invert; rewrite eah.
move: ne; case: (i); case: (i') => //= _; case: (t); rewrite -?trmx_mul ?mulVmx ?mulmxV ?trmx1 //.
Qed.
Lemma cancel_ok w : lawful can w -> lawful can (cancel w) /\ product (cancel w) = product w.
Proof.
elim: w => //= a w IH /andP[oka /IH[okw ew]]; rewrite -ew; case e: (cancel w) okw => [|b v] /=; first by rewrite andbT.
case/andP => okb okv; case: ifP => ab /=; last by rewrite oka okb okv.
by split=> //; rewrite mulmxA mean_undo ?mul1mx //=; rewrite ?oka ?okb.
Qed.
Lemma sort_ok w : n = 1%N -> lawful can w -> lawful can (sort below (map upright w)) /\
  product (sort below (map upright w)) = product w.
Proof.
move=> n1 okw; have com (X Y : 'M[F]_n) : X *m Y = Y *m X.
  by move: X Y; rewrite n1 => X Y; rewrite [X]mx11_scalar [Y]mx11_scalar -!scalar_mxM mulrC.
have sym (X : 'M[F]_n) : X^T = X.
  by move: X; rewrite n1 => X; rewrite [X]mx11_scalar tr_scalar_mx.
have up a : mean (upright a) = mean a by case: a => [[[[k l] h] []] i] //=; rewrite sym.
split; first by rewrite /lawful all_sort all_map; apply: sub_all okw => -[[[[k l] h] t] i].
have perm u v : perm_eq u v -> product u = product v.
  elim: u v => [|a u IH] v; first by rewrite perm_sym => /perm_nilP ->.
  move=> p; have av : a \in v by rewrite -(perm_mem p) mem_head.
  case/splitPr: av p => v1 v2; rewrite perm_sym perm_catC perm_cons perm_catC perm_sym => /IH /= ->.
  by rewrite !product_cat /= !mulmxA [mean a *m product v1]com.
rewrite (perm _ _ (permEl (perm_sort _ _))); elim: (w) => //= a v ->; by rewrite up.
Qed.
Lemma normal_ok w : lawful can w -> product (normal n w) = product w.
Proof.
rewrite /normal; case: eqP => [n1 /(sort_ok n1)[ok <-]|_ ok]; by have [] := cancel_ok ok.
Qed.
Lemma same_product_ok u v : lawful can u -> lawful can v -> same_product n u v -> product u = product v.
Proof. by move=> okU okV /eqP e; rewrite -(normal_ok okU) e normal_ok. Qed.

Notation nats := (map (@nat_of_ord H)).
Lemma along_lawful w : lawful can (along tied w).
Proof. by rewrite /lawful /along all_map; apply/allP => -[]. Qed.
Lemma flipped_lawful w : lawful can w -> lawful can (flipped w).
Proof. by rewrite /lawful /flipped all_rev all_map; apply: sub_all => -[[[[k l] h] t] i]. Qed.
Lemma along_product (w : seq 'I_H) : product (along tied (nats w)) = wprod (values (layers T)) 0 w.
Proof.
rewrite /along size_map.
suff go l : product [seq (0%N, (if tied then 0%N else ih.1), ih.2, false, false) | ih <- zip (iota l (size w)) (nats w)]
    = wprod (values (layers T)) l w by exact: go.
elim: w l => //= h w IH l; rewrite -IH valK /values; congr (_ *m _).
by case: (tied) looped_T => //= /(_ isT) loop; exact: esym (looped_values l h loop).
Qed.

(* the columns of the product of a word *)
Definition entry (x : seq atom * nat) : 'cV[F]_n := if insub x.2 is Some j then col (j : 'I_n) (product x.1) else 0.
Definition embedding (bs : seq block) : 'M[F]_(n, m) :=
  \matrix_(i, a) if at_coordinate d n bs a is Some x then entry x i 0 else 0.
Definition unembedding (cs : seq block) : 'M[F]_(m, n) :=
  \matrix_(a, k) if at_coordinate d n cs a is Some (y, j) then if insub j is Some j then product y (j : 'I_n) k else 0 else 0.
Notation counts := (counts m F).
Lemma embedding_counts bs xs : embedding bs *m counts xs = \sum_(x <- covered d n m bs xs) entry x.
Proof.
elim: xs => [|a xs IH].
  by rewrite /covered big_nil; apply/matrixP => i j; rewrite !mxE big1 // => k _; rewrite !mxE mulr0.
have -> : counts (a :: xs) = counts [:: a] + counts xs by apply/colP => i; rewrite !mxE /= addn0 natrD.
rewrite mulmxDr IH /covered /=; case: ifP => am /=; last first.
  rewrite (_ : counts [:: a] = 0) ?mulmx0 ?add0r //; apply/colP => i; rewrite !mxE /= addn0.
  by case: eqP => // e; rewrite e ltn_ord in am.
have -> : counts [:: a] = delta_mx (Ordinal am) 0.
  by apply/colP => i; rewrite !mxE /= addn0 eqxx andbT -val_eqE /= eq_sym.
rewrite -colE; case e: (at_coordinate d n bs a) => [x|] /=; rewrite ?big_cons.
  by congr (_ + _); apply/colP => i; rewrite !mxE e.
by rewrite -[RHS]add0r; congr (_ + _); apply/colP => i; rewrite !mxE e.
Qed.
Lemma lawful_ends w : lawful can w -> ends w = false.
Proof.
case: w => // a w /allP ok; have := ok _ (mem_last a w); rewrite /ends.
by case: (last a w) => [[[[k l] h] t] i] /= /andP[k2 _]; rewrite ltnNge -ltnS k2.
Qed.
Lemma read_as_ok bs columns xs x j : read_as d n m bs columns xs = Some x -> lawful can x -> (j < columns)%N ->
  embedding bs *m counts (xs j) = entry (x, j).
Proof.
rewrite /read_as; case: (covered d n m bs (xs 0%N)) => [|[x' j'] []] //; case: ifP => // /andP[_ /allP ok] [<-] okx jc.
rewrite embedding_counts (eqP (ok j _)) ?mem_iota //; case: ifP => jw; first by rewrite big_seq1.
by rewrite big_nil /entry insubF //=; move: jw; rewrite /wide lawful_ends.
Qed.
Notation hostF := (host Z0 (inject F) H d m (ones_head o d m)).
Notation outF := (out Z0 (inject F) n m (ones_out o n m)).
Lemma entry_ok bs c (f : nat -> seq nat) (w : seq 'I_H) x (i : 'I_n) (j : 'I_c) :
  read_as d n m bs c (fun j => follow o m 0 (nats w) (f j)) = Some x -> lawful can x ->
  (embedding bs *m wprod (values hostF) 0 w *m mof Z0 (inject F) m c (dense m c f)) i j = entry (x, j : nat) i 0.
Proof.
move=> r ok; rewrite -(read_as_ok r ok (ltn_ord j)) -(@wprod_counts o H d) -mof_dense [in RHS]colE !mulmxA -colE.
by rewrite [RHS]mxE.
Qed.
Lemma mem_words (w : seq 'I_H) l : size w = l -> nats w \in words H l.
Proof. by move=> <-; exact: words_mem. Qed.

Theorem outputs_ok bs : outputs H d n m L o tied can bs ->
  forall w : L.-tuple 'I_H, embedding bs *m wprod (values hostF) 0 w *m outF = wprod (values (layers T)) 0 w.
Proof.
move=> /allP ok w; have := ok _ (mem_words (size_tuple w)); rewrite /reads_word.
case r: read_as => [x|] // /andP[okx /(same_product_ok okx (along_lawful _)) e]; apply/matrixP => i j.
by rewrite (entry_ok _ _ r okx) /entry /= valK mxE e along_product.
Qed.
Theorem logits_ok bs : serves_logits H d n m L o tied can bs -> matches_logits L hostF outF (layers T) (embedding bs).
Proof.
case/andP => /andP[nd /outputs_ok out] /allP ok; split=> // l w v h lL.
have /allP/(_ (h : nat)) := ok l ltac:(by rewrite mem_iota). rewrite mem_iota /= ltn_ord => /(_ isT)/allP.
move/(_ _ (mem_words (size_tuple w))); rewrite /reads_word.
case rx: read_as => [x|] // /andP[okx /allP/(_ _ (mem_words (size_tuple v)))].
case ry: read_as => [y|] // /andP[oky same].
have ok1 : lawful can (x ++ flipped y) by rewrite /lawful all_cat; apply/andP; split; [exact: okx | exact: flipped_lawful].
have ok2 : lawful can (along tied (nats w) ++ (1%N, (if tied then 0%N else l), h : nat, false, false) :: flipped (along tied (nats v))).
  rewrite /lawful all_cat; apply/andP; split; first exact: along_lawful.
  by apply: flipped_lawful; exact: along_lawful.
have := same_product_ok ok1 ok2 same; rewrite !product_cat /= !product_flipped !along_product valK => e.
have formE : form (layers T) (if tied then 0%N else l) h = form (layers T) l h.
  by case: (tied) looped_T => //= /(_ isT) loop; rewrite /form /=; have [-> -> _ _] := loop l h.
rewrite formE in e; transitivity (product x *m (product y)^T); last first.
  by rewrite e /form trmx_mul !mulmxA.
apply/matrixP => i k.
have -> : (product x *m (product y)^T) i k = \sum_(j < n) entry (x, j : nat) i 0 * entry (y, j : nat) k 0.
  by rewrite mxE; apply: eq_bigr => j _; rewrite /entry /= valK !mxE.
rewrite (big_ord_widen d (fun j => entry (x, j) i 0 * entry (y, j) k 0) nd) mxE [RHS]big_mkcond.
apply: eq_bigr => j _; rewrite [in X in _ * X]mxE (entry_ok _ _ rx okx) (entry_ok _ _ ry oky).
by case: ifP => // /negbT; rewrite -leqNgt => nj; rewrite /entry /= insubF ?mxE ?mul0r // ltnNge nj.
Qed.
Let across (y : seq atom * nat) (k : 'I_n) : F := if insub y.2 is Some j then product y.1 (j : 'I_n) k else 0.
Lemma meeting_ok bs cs (w : seq 'I_H) i k :
  (embedding bs *m wprod (values hostF) 0 w *m unembedding cs) i k =
  \sum_(p <- meeting d n m o bs cs (nats w)) entry p.1 i 0 * across p.2 k.
Proof.
have iotaE t : iota 0 t = index_iota 0 t by rewrite /index_iota subn0.
rewrite /meeting big_flatten big_map /= iotaE big_mkord mxE; apply: eq_bigr => c _.
have -> : (embedding bs *m wprod (values hostF) 0 w) i c = \sum_(x <- covered d n m bs (follow o m 0 (nats w) [:: c : nat])) entry x i 0.
  have e : counts [:: c : nat] = delta_mx c 0 by apply/colP => a; rewrite !mxE /= addn0 eqxx andbT -val_eqE /= eq_sym.
  have := congr1 (fun A : 'cV_n => A i 0) (embedding_counts bs (follow o m 0 (nats w) [:: c : nat])).
  by rewrite /= summxE -(@wprod_counts o H d) e !mulmxA -colE mxE.
rewrite [unembedding cs _ _]mxE; case: (at_coordinate d n cs c) => [[y j]|]; last by rewrite mulr0 big_nil.
by rewrite big_map mulr_suml; apply: eq_bigr => x _.
Qed.
Theorem both_ok bs cs : serves_both H d n m L o tied can bs cs ->
  forall w : L.-tuple 'I_H, embedding bs *m wprod (values hostF) 0 w *m unembedding cs = wprod (values (layers T)) 0 w.
Proof.
move=> /allP ok w; have := ok _ (mem_words (size_tuple w)).
have at_w i k := meeting_ok bs cs w i k; move: at_w; case: (meeting d n m o bs cs (nats w)) => [|[[x jx] [y jy]] ps] // at_w.
case/and4P => okx oky /eqP e same; rewrite e in at_w.
have okxy : lawful can (x ++ y) by rewrite /lawful all_cat; apply/andP.
have := same_product_ok okxy (along_lawful _) same; rewrite product_cat along_product => <-.
apply/matrixP => i k; have iotaE : iota 0 n = index_iota 0 n by rewrite /index_iota subn0.
rewrite at_w big_map iotaE big_mkord mxE; apply: eq_bigr => j _.
by rewrite /entry /across /= !valK mxE.
Qed.
End Meaning.
