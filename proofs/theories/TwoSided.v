(* The two-sided shift register: m = din * H^(L/2) for even L, E and U both free. *)
(*                                                                                *)
(* Coordinates are words of length k = L/2 with an index below din (and r unused  *)
(* coordinates). Let 0 be the first head. Every matrix is a partial permutation:  *)
(*   first half    R^h = sum_s e_(h,s) e_(s,0)^T   compares and forgets a letter  *)
(*   second half   R^h = sum_s e_(0,s) e_(s,h)^T   writes the letter h            *)
(* E holds the products of the first half's value matrices, U the second half's.  *)
(*                                                                                *)
(* two_sided_universal   shared attention, any ring, L = 2k, any width din: one   *)
(*                       {0,1} host with m >= din H^k serves every target, E and U*)
(*                       depending on the target                                  *)
(* one_sided_universal   U fixed: the first half alone, with k = L, is a tied host of*)
(*                       dimension m >= din H^L that serves every target; over a  *)
(*                       field no smaller one does (fixed_unembedding_tight)      *)
(* two_sided_tight       din = 1, over a field: such a host exists iff H^k <= m,  *)
(*                       so the bound of thm:lower_bound_utf is attained at even L*)
(* two_sided_tight_functional   the same in the theorem's own words: equal outputs*)
(*                       for every row-stochastic attention                       *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Selection Spanning SharedBounds.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* the first head, once there is one *)
Definition zero H (h : 'I_H) : 'I_H := Ordinal (leq_ltn_trans (leq0n h) (ltn_ord h)).

Lemma zeroE H (h h' : 'I_H) : zero h = zero h'.
Proof. exact: val_inj. Qed.

Lemma map_zero H (h : 'I_H) w : map (@zero H) w = nseq (size w) (zero h).
Proof. by elim: w => //= a w ->; rewrite (zeroE a h). Qed.

Lemma eq_map_zero H (p q : seq 'I_H) : size p = size q -> map (@zero H) p = map (@zero H) q.
Proof. by case: q => [/size0nil->|h q] // pq; rewrite !(map_zero h) pq. Qed.

Section Register.
Variables (R : ringType) (H k din r : nat).

Definition coordinate := [finType of k.-tuple 'I_H * 'I_din + 'I_r].
Notation m := #|coordinate|.

Lemma card_coordinate : m = (din * H ^ k + r)%N.
Proof. by rewrite card_sum card_prod card_tuple !card_ord mulnC. Qed.

(* block x embeds the coordinates (x, -) of the word x *)
Definition block (x : seq 'I_H) : 'M[R]_(din, m) := \matrix_(j, u)
  (if enum_val u is inl (y, i) then (tval y == x) && (i == j) else false)%:R.

Definition lift_rel (e : rel (seq 'I_H)) : rel coordinate := fun u v =>
  match u, v with inl (x, i), inl (y, j) => e x y && (i == j) | _, _ => false end.

(* Rows are states: x --h--> y *)
Definition compare (h : 'I_H) : 'M[R]_m := rel_mx R (lift_rel (fun x y => rcons x (zero h) == h :: y)).
Definition write (h : 'I_H) : 'M[R]_m := rel_mx R (lift_rel (fun x y => rcons x h == zero h :: y)).

Lemma block_mul (x : k.-tuple 'I_H) n (A : 'M[R]_(m, n)) :
  block x *m A = \matrix_(j, c) A (enum_rank (inl (x, j))) c.
Proof.
apply/matrixP => j c; rewrite !mxE (bigD1 (enum_rank (inl (x, j)))) //= !mxE enum_rankK !eqxx mul1r.
rewrite big1 ?addr0 // => u ne; rewrite mxE.
case E: (enum_val u) => [[y i]|i]; last by rewrite mul0r.
case: eqP => [/val_inj ey|]; case: eqP => [ei|]; rewrite ?mul0r //.
by rewrite -ey -ei -E enum_valK eqxx in ne.
Qed.

Lemma block_orth (x y : k.-tuple 'I_H) : block x *m (block y)^T = (x == y)%:R%:M.
Proof.
rewrite block_mul; apply/matrixP => i j; rewrite !mxE enum_rankK (inj_eq val_inj).
by case: (x == y); case: (i == j).
Qed.

(* one step of a block, when the relation has exactly one or no next word *)
Lemma block_rel (e : rel (seq 'I_H)) x y : size x = k -> (forall z, e x z = (z == y)) ->
  block x *m rel_mx R (lift_rel e) = block y.
Proof.
move=> /eqP sx exy; rewrite (@block_mul (Tuple sx)); apply/matrixP => j u; rewrite !mxE enum_rankK /=.
by case: (enum_val u) => [[z i]|//]; rewrite exy [i == j]eq_sym.
Qed.

Lemma block_rel0 (e : rel (seq 'I_H)) x : size x = k -> (forall z, e x z = false) ->
  block x *m rel_mx R (lift_rel e) = 0.
Proof.
move=> /eqP sx e0; rewrite (@block_mul (Tuple sx)); apply/matrixP => j u; rewrite !mxE enum_rankK /=.
by case: (enum_val u) => [[z i]|//]; rewrite e0.
Qed.

Lemma block_compare a s h : (size s).+1 = k ->
  block (a :: s) *m compare h = (a == h)%:R *: block (rcons s (zero h)).
Proof.
move=> sk; have [->|/negbTE ne] := eqVneq a h.
  by rewrite scale1r; apply: block_rel => // z; rewrite eqseq_cons eqxx eq_sym.
by rewrite scale0r; apply: block_rel0 => // z; rewrite eqseq_cons ne.
Qed.

Lemma block_write s h : (size s).+1 = k -> block (zero h :: s) *m write h = block (rcons s h).
Proof. by move=> sk; apply: block_rel => // z; rewrite eqseq_cons eqxx eq_sym. Qed.

(* comparing p with the register x *)
Lemma block_compare_word l0 p x s : size (x ++ s) = k -> size x = size p ->
  block (x ++ s) *m wprod (fun=> compare) l0 p = (x == p)%:R *: block (s ++ map (@zero H) p).
Proof.
elim: p l0 x s => [|h p IH] l0 [|a x] s //= sk; first by rewrite mulmx1 scale1r cats0.
case=> xp; rewrite mulmxA block_compare // -scalemxAl rcons_cat IH //; last first.
  by rewrite size_cat size_rcons addnS -size_cat.
by rewrite scalerA -natrM mulnb eqseq_cons cat_rcons.
Qed.

(* writing p into a register of zeros *)
Lemma block_write_word l0 p s : (size p + size s)%N = k ->
  block (map (@zero H) p ++ s) *m wprod (fun=> write) l0 p = block (s ++ p).
Proof.
elim: p l0 s => [|h p IH] l0 s /= sk; first by rewrite mulmx1 cats0.
rewrite mulmxA block_write; last by rewrite size_cat size_map.
by rewrite rcons_cat IH ?cat_rcons // size_rcons addnS -addSn.
Qed.

(* A row for every word of length k: what the first half of the host reads *)
Definition tape a (A : seq 'I_H -> 'M[R]_(a, din)) : 'M[R]_(a, m) :=
  \sum_(w : k.-tuple 'I_H) A w *m block w.

(* and a column for every word: what the second half leads to *)
Definition cotape b (B : seq 'I_H -> 'M[R]_(din, b)) : 'M[R]_(m, b) :=
  \sum_(w : k.-tuple 'I_H) (block w)^T *m B w.

Lemma tape_compare a (A : seq 'I_H -> 'M[R]_(a, din)) l0 (p : k.-tuple 'I_H) :
  tape A *m wprod (fun=> compare) l0 p = A p *m block (map (@zero H) p).
Proof.
have step (x : k.-tuple 'I_H) : block x *m wprod (fun=> compare) l0 p =
    (x == p)%:R%:M *m block (map (@zero H) p).
  by have := @block_compare_word l0 p x [::]; rewrite cats0 !size_tuple mul_scalar_mx => ->.
rewrite mulmx_suml (bigD1 p) //= -mulmxA step eqxx mul1mx big1 ?addr0 // => x /negbTE ne.
by rewrite -mulmxA step ne raddf0 mul0mx mulmx0.
Qed.

Lemma write_cotape b (B : seq 'I_H -> 'M[R]_(din, b)) l0 (p : k.-tuple 'I_H) :
  block (map (@zero H) p) *m wprod (fun=> write) l0 p *m cotape B = B p.
Proof.
have := @block_write_word l0 p [::]; rewrite cats0 addn0 size_tuple => -> //.
rewrite mulmx_sumr (bigD1 p) //= mulmxA block_orth eqxx mul1mx big1 ?addr0 // => x /negbTE ne.
by rewrite mulmxA block_orth eq_sym ne raddf0 mul0mx.
Qed.

(* the embedding of the word of zeros, read back *)
Definition origin : 'M[R]_(m, din) :=
  \sum_(x : k.-tuple 'I_H | [tuple of map (@zero H) x] == x) (block x)^T.

Lemma block_origin (p : k.-tuple 'I_H) : block (map (@zero H) p) *m origin = 1%:M.
Proof.
pose z : k.-tuple 'I_H := [tuple of map (@zero H) p].
have zz : [tuple of map (@zero H) z] == z by apply/eqP/val_inj/eq_map_zero; rewrite size_map.
have -> : map (@zero H) p = z by [].
rewrite mulmx_sumr (bigD1 z) //= block_orth eqxx big1 ?addr0 // => x /andP[/eqP zx ne].
rewrite block_orth (_ : _ == x = false) ?raddf0 //; apply: contraNF ne => _; rewrite -{1}zx.
by apply/eqP/val_inj/eq_map_zero; rewrite !size_tuple.
Qed.

Lemma is01_compare h : is01 (compare h).
Proof. exact: is01_bool. Qed.

Lemma is01_write h : is01 (write h).
Proof. exact: is01_bool. Qed.

Lemma nnz_rel (e : rel (seq 'I_H)) : (forall x y y', e x y -> e x y' -> y = y') ->
  (nnz (rel_mx R (lift_rel e)) <= m)%N.
Proof.
move=> e_fun; apply: nnz_row => u v v'; rewrite !mxE => /natr_neq0 + /natr_neq0.
case Eu: (enum_val u) => [[x i]|//]; case Ev: (enum_val v) => [[y j]|//] /=.
case Ev': (enum_val v') => [[y' j']|//] /= /andP[exy /eqP ij] /andP[exy' /eqP ij'].
apply: enum_val_inj; rewrite Ev Ev' -ij -ij'; congr (inl (_, _)).
by apply: val_inj; apply: e_fun exy exy'.
Qed.

Lemma nnz_compare h : (nnz (compare h) <= m)%N.
Proof. by apply: nnz_rel => x y y' /eqP-> /eqP[]. Qed.

Lemma nnz_write h : (nnz (write h) <= m)%N.
Proof. by apply: nnz_rel => x y y' /eqP-> /eqP[]. Qed.

End Register.

(* the values of a host whose first k layers are A and whose later layers are B *)
Definition two_halves (T : Type) (k : nat) (A B : T) (l : nat) : T := if (l < k)%N then A else B.

Lemma wprod_two_halves (R : ringType) H D k (A B : 'I_H -> 'M[R]_D) (p q : seq 'I_H) : size p = k ->
  wprod (two_halves k A B) 0 (p ++ q) = wprod (fun=> A) 0 p *m wprod (fun=> B) k q.
Proof.
move=> pk; rewrite wprod_cat pk; congr (_ *m _); apply: eq_wprod => l h; rewrite /two_halves.
  by rewrite add0n pk /= => ->.
by rewrite add0n => /andP[kl _]; rewrite ltnNge kl.
Qed.

(* Shared attention, L = 2k, any width din, over any ring: one host of dimension m, whose first k layers
   share their matrices and whose last k layers share theirs, serves every untied target. *)
Theorem two_sided_universal (R : ringType) (H k din m : nat) : (din * H ^ k <= m)%N ->
  exists V1 V2 : 'I_H -> 'M[R]_m,
  [/\ forall h, is01 (V1 h) /\ is01 (V2 h), forall h, (nnz (V1 h) <= m)%N /\ (nnz (V2 h) <= m)%N &
      forall M : nat -> 'I_H -> 'M[R]_din, exists E U,
        shared_matches k.*2 (two_halves k V1 V2) M E U].
Proof.
move=> /subnKC <-; rewrite -card_coordinate.
set r := (m - _)%N; exists (compare R k din r), (write R k din r); split=> [h|h|M].
- by split; [apply: is01_compare|apply: is01_write].
- by split; [apply: nnz_compare|apply: nnz_write].
exists (tape k r (wprod M 0)), (cotape k r (wprod M k)) => w.
have p_k : size (take k w) == k by rewrite size_takel // size_tuple -addnn leq_addr.
have q_k : size (drop k w) == k by rewrite size_drop size_tuple -addnn addKn.
rewrite -(cat_take_drop k w) (wprod_two_halves _ _ _ (eqP p_k)) wprod_cat (eqP p_k) add0n.
rewrite (mulmxA (tape _ _ _)) (@tape_compare _ _ _ _ _ _ _ _ (Tuple p_k)) /= -!mulmxA; congr (_ *m _).
rewrite (eq_map_zero (etrans (eqP p_k) (esym (eqP q_k)))).
by rewrite mulmxA (@write_cotape _ _ _ _ _ _ _ _ (Tuple q_k)).
Qed.

(* U fixed, any width, any ring: a tied host of dimension din H^L serves every untied target. *)
Theorem one_sided_universal (R : ringType) (H L din m : nat) : (din * H ^ L <= m)%N ->
  exists (V : 'I_H -> 'M[R]_m) (U : 'M[R]_(m, din)), forall M : nat -> 'I_H -> 'M[R]_din,
    exists E, shared_matches L (fun=> V) M E U.
Proof.
move=> /subnKC <-; rewrite -card_coordinate; set r := (m - _)%N.
exists (compare R L din r), (origin R H L din r) => M; exists (tape L r (wprod M 0)) => w.
by rewrite tape_compare -mulmxA block_origin mulmx1.
Qed.

Theorem fixed_unembedding_tight (F : fieldType) (H d din L m : nat) : (0 < d)%N ->
  (exists (V : nat -> 'I_H -> 'M[F]_m) U, forall T : transformer F H d din,
    exists E, shared_matches L V (values (layers T)) E U) <-> (din * H ^ L <= m)%N.
Proof.
move=> d_gt0; split=> [[V [U univ]]|/(one_sided_universal F)[V [U univ]]].
  exact: fixed_unembedding_bound univ.
by exists (fun=> V), U => T; apply: univ.
Qed.

(* Width 1: the bound H^L <= m^2 of thm:lower_bound_utf is attained for every even L. *)
Theorem two_sided_tight (F : fieldType) (H d k m : nat) : (0 < d)%N ->
  (exists V : nat -> 'I_H -> 'M[F]_m, forall T : transformer F H d 1, exists E U,
    shared_matches k.*2 V (values (layers T)) E U) <-> (H ^ k <= m)%N.
Proof.
move=> d_gt0; split=> [[V univ]|le_m].
  have := free_bound d_gt0 (ltn0Sn 0) univ.
  by rewrite -muln2 expnM leq_sqr.
have [|V1 [V2 [_ _ univ]]] := @two_sided_universal F H k 1 m; first by rewrite mul1n.
by exists (two_halves k V1 V2) => T; apply: univ.
Qed.

Theorem two_sided_tight_functional (F : numFieldType) (H d k m : nat) : (0 < d)%N ->
  (exists V : nat -> 'I_H -> 'M[F]_m, forall T : transformer F H d 1, exists E U,
    shared_emulates k.*2 V (values (layers T)) E U (@row_stochastic F)) <-> (H ^ k <= m)%N.
Proof.
move=> d_gt0; rewrite -(two_sided_tight F _ _ _ d_gt0).
by split=> -[V univ]; exists V => T; have [E [U EU]] := univ T; exists E, U; apply/spanning_lemma_stochastic.
Qed.
