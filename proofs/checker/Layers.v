(* R_all times a vector, layer by layer, without forming R_all; over any ring, lists for matrices.          *)
(*                                                                                                         *)
(*   head, mat, vec   the matrices of a head, as lists of rows                                             *)
(*   tree             a vector of length M, arranged by head words                                         *)
(*   apply, applies   R_all times one tree, and times many at once: every matrix is made once              *)
(*   host, out        the host of the library (Transformer.v) that the lists denote                        *)
(*   zvec             the vector that a tree denotes, in the library's order of columns                    *)
(*   semE             R_all zvec = what is computed                                                        *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words MatchingSystem Emulation.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

(* ------------------------------- what is executed ------------------------------------ *)
Section Program.
Variables (A : Type) (a0 : A) (add mul : A -> A -> A) (red : A -> A) (nz : A -> bool).
Definition vec := seq A.
Definition mat := seq vec.                                   (* rows *)
Record head := Head { hQ : mat; hK : mat; hV : mat }.
Definition head0 := Head [::] [::] [::].
(* a vector of length M by head words: the subtree of a word, and what its last head reads *)
Inductive tree := Leaf of vec | Node of seq (vec * vec * tree).
Definition entry0 : vec * vec * tree := ([::], [::], Leaf [::]).

Fixpoint dot (r x : vec) : A := match r, x with a :: r', b :: x' => add (mul a b) (dot r' x') | _, _ =>
  a0 end.
Definition matvec n (B : mat) (x : vec) : vec :=
  if x is [::] then [::] else let y := take n x in [seq red (dot r y) | r <- B].
Fixpoint vadd (x y : vec) : vec := match x, y with
  | a :: x', b :: y' => add a b :: vadd x' y' | [::], _ => y | _, [::] => x end.
Definition at_head (t : tree) (h : nat) := if t is Node cs then nth entry0 cs h else entry0.
Definition leaf (t : tree) := if t is Leaf u then u else [::].

Section Shape.
Variables (H d din m : nat) (live : nat -> bool) (S : nat -> nat -> head) (U : mat).
(* R_all times the vector *)
Fixpoint apply (k l : nat) (t : tree) : vec := match k with
  | 0 => matvec din U (leaf t)
  | k'.+1 => foldr (fun h acc => let c := at_head t h in let x := S l h in
      vadd (matvec d (hQ x) c.1.1) (vadd (matvec d (hK x) c.1.2)
        (vadd (matvec m (hV x) (apply k' l.+1 c.2)) acc))) [::] (iota 0 H) end.
(* many trees at once *)
Fixpoint vadds (xs ys : seq vec) : seq vec := match xs, ys with
  | x :: xs', y :: ys' => vadd x y :: vadds xs' ys' | _, _ => [::] end.
Fixpoint applies (k l : nat) (ts : seq tree) : seq vec := match k with
  | 0 => [seq matvec din U (leaf t) | t <- ts]
  | k'.+1 => let n := size ts in
    let below := applies k' l.+1 (flatten [seq [seq (at_head t h).2 | t <- ts] | h <- iota 0 H]) in
    foldr (fun h acc => let x := S l h in let B := hV x in
      let cs := [seq at_head t h | t <- ts] in
      vadds [seq matvec d (hQ x) c.1.1 | c <- cs] (vadds [seq matvec d (hK x) c.1.2 | c <- cs]
        (vadds [seq matvec m B y | y <- take n (drop (h * n) below)] acc))) (nseq n [::]) (iota 0 H) end.
Definition all0 n (x : vec) := all (fun a => ~~ nz a) (take n x).
Fixpoint some (k : nat) (t : tree) : bool := match k with
  | 0 => ~~ all0 din (leaf t)
  | k'.+1 => has (fun h => let c := at_head t h in
      (live h && (~~ all0 d c.1.1 || ~~ all0 d c.1.2)) || some k' c.2) (iota 0 H) end.
Definition refutes (L : nat) (t : tree) : bool := [&& 0 < d, 0 < din, some L t & all0 m (nth [::]
  (applies L 0 [:: t]) 0)]%N.
End Shape.
End Program.

(* many at once are one after the other *)
Section Applies.
Variables (A : Type) (a0 : A) (add mul : A -> A -> A) (red : A -> A).
Variables (H d din m : nat) (S : nat -> nat -> head A) (U : mat A).
Lemma vadds_map (I : Type) (f g : I -> vec A) s :
  vadds add [seq f i | i <- s] [seq g i | i <- s] = [seq vadd add (f i) (g i) | i <- s].
Proof. by elim: s => //= i s ->. Qed.
Lemma block_flatten (T : Type) n (f : nat -> seq T) a k h : (forall h, size (f h) = n) -> (h < k)%N ->
  take n (drop (h * n) (flatten [seq f i | i <- iota a k])) = f (a + h)%N.
Proof.
move=> sz; elim: k a h => // k IH a [|h] /=; first by rewrite mul0n drop0 take_size_cat // addn0.
by move=> hk; rewrite drop_cat sz mulSn ltnNge leq_addr /= addKn IH // addSnnS.
Qed.
Lemma appliesE k l ts : applies a0 add mul red H d din m S U k l ts = [seq apply a0 add mul red H d din m
  S U k l t | t <- ts].
Proof.
elim: k l ts => [|k IH] l ts //=; rewrite IH; set f := apply _ _ _ _ _ _ _ _ _ _ k l.+1.
set below := map f _; have belowE h : (h < H)%N -> take (size ts) (drop (h * size ts) below) = [seq f
  (at_head t h).2 | t <- ts].
  move=> hH; rewrite /below map_flatten -map_comp /comp.
  have sz i : size (map f [seq (at_head t i).2 | t <- ts]) = size ts by rewrite !size_map.
  by rewrite (block_flatten 0 sz hH) add0n -map_comp.
have : all (fun h => h < H)%N (iota 0 H) by apply/allP => h; rewrite mem_iota.
elim: (iota 0 H) => [|h s IHs] /=; first by move=> _; elim: (ts) => //= t ts' ->.
case/andP => hH /IHs ->; rewrite belowE // -!map_comp !vadds_map; exact: eq_map.
Qed.
End Applies.

(* ------------------------------- what it means --------------------------------------- *)
Section Meaning.
Variables (A : Type) (a0 : A) (add mul : A -> A -> A) (red : A -> A) (nz : A -> bool).
Variables (R : ringType) (phi : A -> R).
Hypotheses (phi0 : phi a0 = 0) (phiD : forall a b, phi (add a b) = phi a + phi b)
           (phiM : forall a b, phi (mul a b) = phi a * phi b) (phi_red : forall a, phi (red a) = phi a)
             (phi_nz : forall a, nz a = (phi a != 0)).
Notation vec := (vec A). Notation mat := (mat A). Notation tree := (tree A).
Definition cof n (x : vec) : 'cV[R]_n := \col_i phi (nth a0 x i).
Definition mof a b (B : mat) : 'M[R]_(a, b) := \matrix_(i, j) phi (nth a0 (nth [::] B i) j).

Lemma cof0 n : cof n [::] = 0. Proof. by apply/colP => i; rewrite !mxE nth_nil. Qed.
Lemma cof_vadd n x y : cof n (vadd add x y) = cof n x + cof n y.
Proof.
apply/colP => i; rewrite !mxE; move: (i : nat) => {i} i.
elim: x y i => [|a x IH] [|b y] [|i] //=; rewrite ?nth_nil ?phi0 ?add0r ?addr0 //.
Qed.
Lemma dotE n r x : phi (dot a0 add mul r (take n x)) = \sum_(j < n) phi (nth a0 r j) * phi (nth a0 x j).
Proof.
elim: n r x => [|n IH] r x; first by rewrite take0 big_ord0; case: r.
case: r => [|a r]; first by rewrite /= big1 // => j _; rewrite nth_nil phi0 mul0r.
case: x => [|b x]; first by rewrite /= big1 // => j _; rewrite nth_nil phi0 mulr0.
by rewrite /= phiD phiM IH big_ord_recl.
Qed.
Lemma cof_matvec n a B x : cof a (matvec a0 add mul red n B x) = mof a n B *m cof n x.
Proof.
rewrite /matvec; case: x => [|b x]; first by rewrite !cof0 mulmx0.
apply/colP => i; rewrite !mxE; case: (ltnP i (size B)) => iB.
  by rewrite (nth_map [::]) // phi_red dotE; apply: eq_bigr => j _; rewrite !mxE.
rewrite nth_default ?size_map // phi0 big1 // => j _; rewrite !mxE (nth_default [::]) //.
by rewrite nth_nil phi0 mul0r.
Qed.
Lemma cof_all0 n x : all0 nz n x = (cof n x == 0).
Proof.
apply/idP/eqP => [/(all_nthP a0) x0|/colP x0].
  apply/colP => i; rewrite !mxE; case: (ltnP i (size x)) => ix; last by rewrite nth_default.
  have := x0 i; rewrite size_take nth_take ?ltn_ord // phi_nz negbK => h.
  apply/eqP/h; case: (ltnP n (size x)) => // _; exact: ltn_ord.
apply/(all_nthP a0) => i; rewrite size_take => ix.
have iN : (i < n)%N by move: ix; case: (ltnP n (size x)) => // nx ix; apply: leq_trans ix nx.
by rewrite nth_take // phi_nz negbK; have := x0 (Ordinal iN); rewrite !mxE => ->.
Qed.

Section Shape.
Variables (H d din m L : nat) (live : nat -> bool) (S : nat -> nat -> head A) (U : mat).
(* the host that the lists denote *)
Definition host (l : nat) : layer R H d m := Layer
  (fun h => mof m d (hQ (S l h))) (fun h => mof m d (hK (S l h))) (fun h => mof m m (hV (S l h))).
Definition out : 'M[R]_(m, din) := mof m din U.

Fixpoint sem (k l : nat) (t : tree) : 'cV[R]_m := if k is k'.+1 then
  \sum_(h < H) (lQ (host l) h *m cof d (at_head t h).1.1 + lK (host l) h *m cof d (at_head t h).1.2
                + lV (host l) h *m sem k' l.+1 (at_head t h).2)
  else out *m cof din (leaf t).
Lemma applyE k l t : cof m (apply a0 add mul red H d din m S U k l t) = sem k l t.
Proof.
elim: k l t => [|k IH] l t /=; first exact: cof_matvec.
rewrite -(big_mkord xpredT (fun h => mof m d (hQ (S l h)) *m cof d (at_head t h).1.1
  + mof m d (hK (S l h)) *m cof d (at_head t h).1.2 + mof m m (hV (S l h)) *m sem k l.+1 (at_head t h).2)).
rewrite /index_iota subn0; elim: (iota 0 H) => [|h s IHs]; first by rewrite big_nil cof0.
by rewrite big_cons /= !cof_vadd !cof_matvec IHs IH !addrA.
Qed.

(* the vector itself *)
Definition descend (t : tree) (w : seq 'I_H) := foldl (fun t (h : 'I_H) => (at_head t h).2) t w.
Definition zvec (t : tree) : 'cV[R]_#|column H d din L| := \col_c match (enum_val c : column H d din L) with
  | inl (w, j) => match split j with
      | inl j => cof d (at_head (descend t (prew w)) (lastw w)).1.1 j 0
      | inr j => cof d (at_head (descend t (prew w)) (lastw w)).1.2 j 0 end
  | inr (w, j) => cof din (leaf (descend t w)) j 0 end.

Lemma sum_word (V : zmodType) (F : word H L -> V) :
  \sum_w F w = \sum_(l < L) \sum_(v : l.+1.-tuple 'I_H) F (Tagged (fun l : 'I_L => l.+1.-tuple 'I_H) v).
Proof. by rewrite ![index_enum _]unlock [@Finite.enum in LHS]unlock /= /tag_enum big_flatten big_map;
  apply: eq_bigr => l _; rewrite big_map [index_enum _]unlock. Qed.

Let read l (w : seq 'I_H) (h : 'I_H) t := lQ (host l) h *m cof d (at_head (descend t w) h).1.1
                            + lK (host l) h *m cof d (at_head (descend t w) h).1.2.
Lemma sem_unroll t k : (k <= L)%N -> sem L 0 t =
  \sum_(l < k) \sum_(w : l.-tuple 'I_H) \sum_(h < H) wprod (values host) 0 w *m read l w h t
  + \sum_(w : k.-tuple 'I_H) wprod (values host) 0 w *m sem (L - k) k (descend t w).
Proof.
elim: k => [_|k IH kL].
  rewrite big_ord0 add0r subn0 (big_pred1 [tuple]) /= ?mul1mx // => w; exact/esym/eqP/tuple0.
rewrite IH ?(ltnW kL) // big_ord_recr /= -addrA; congr (_ + _).
rewrite (@sum_words_rcons _ _ _ (fun w => wprod (values host) 0 w *m sem (L - k.+1) k.+1 (descend t w))).
rewrite -big_split; apply: eq_bigr => w _ /=; rewrite -[(L - k)%N](prednK (n := L - k)) ?subn_gt0 //= -subnS.
rewrite mulmx_sumr -big_split; apply: eq_bigr => h _ /=.
rewrite mulmxDr wprod_rcons add0n size_tuple -mulmxA; congr (_ + _ *m (_ *m sem _ _ _)).
by rewrite /descend foldl_rcons.
Qed.

Theorem semE t : sem L 0 t = Rall L host out *m zvec t.
Proof.
have pairE (V : zmodType) (I J : finType) (G : I * J -> V) : \sum_p G p = \sum_i \sum_j G (i, j).
  by rewrite pair_big; apply: eq_bigr => -[].
rewrite (sem_unroll t (leqnn L)) subnn /=; apply/colP => i; rewrite [RHS]mxE.
rewrite (reindex (@enum_rank (column H d din L))) /=; last exact/onW_bij/enum_rank_bij.
under [RHS]eq_bigr => c _ do rewrite !mxE enum_rankK.
rewrite big_sumType /= mxE !pairE; congr (_ + _); last first.
  rewrite summxE; apply: eq_bigr => w _.
  by rewrite mulmxA mxE; apply: eq_bigr => j _; rewrite !mxE.
transitivity (\sum_(w : word H L) (wprod (values host) 0 (prew w) *m read (tag w) (prew w) (lastw w) t) i 0).
  rewrite sum_word summxE; apply: eq_bigr => l _; rewrite -summxE; congr (fun_of_matrix _ i 0).
  pose F (s : seq 'I_H) := if s is h :: s' then wprod (values host) 0 (belast h s') *m read l (belast h
    s') (last h s') t else 0.
  transitivity (\sum_(v : l.+1.-tuple 'I_H) F v); last first.
    apply: eq_bigr => v _; rewrite /F /prew /lastw /letters /=.
    by case/tupleP: v => h s /=; rewrite theadE.
  rewrite (@sum_words_rcons _ _ _ F); apply: eq_bigr => w _; apply: eq_bigr => h _.
  by rewrite /F; case: (tval w) => [|b s] //=; rewrite belast_rcons last_rcons.
apply: eq_bigr => w _; rewrite /read mulmxDr mxE big_split_ord /=; congr (_ + _); rewrite mulmxA mxE;
  apply: eq_bigr => j _.
  by rewrite (unsplitK (inl j)) mxE.
by rewrite (unsplitK (inr j)) mxE.
Qed.

Lemma not_all0 n x : ~~ all0 nz n x -> exists j : 'I_n, cof n x j 0 != 0.
Proof. by rewrite cof_all0 => /cV0Pn. Qed.

(* a column that a head reads whose columns count *)
Definition counted (c : column H d din L) : bool := if c is inl (w, _) then live (lastw w) else true.
Lemma some_zvec t : some nz H d din live L t -> exists2 c, counted c & zvec t (enum_rank c) 0 != 0.
Proof.
suff go k (w : seq 'I_H) : (size w + k)%N = L -> some nz H d din live k (descend t w) ->
    exists2 c, counted c & zvec t (enum_rank c) 0 != 0.
  by move=> s; exact: (go L [::]).
elim: k w => [|k IH] w e /=.
  rewrite addn0 in e; move/eqP in e; move=> /not_all0[j nzj].
  by exists (inr (Tuple e, j)) => //; rewrite mxE enum_rankK.
case/hasP => h; rewrite mem_iota add0n => /andP[_ hH].
have lL : (size w < L)%N by rewrite -e addnS ltnS leq_addr.
pose x j : column H d din L := inl (mkword (in_tuple w) (Ordinal hH) lL, j).
have cx j : live h -> counted (x j).
  by move=> lh; rewrite /= (mkwordK _ _ _ (fun l (w : l.-tuple 'I_H) (h : 'I_H) => live h)).
case/orP => [/andP[lh /orP[]] /not_all0[j nzj]|].
- exists (x (lshift d j)); [exact: cx | rewrite mxE enum_rankK /x (unsplitK (inl j))].
  by rewrite (mkwordK _ _ _ (fun l (w : l.-tuple 'I_H) (h : 'I_H) => cof d (at_head (descend t w) h).1.1
    j 0)).
- exists (x (rshift d j)); [exact: cx | rewrite mxE enum_rankK /x (unsplitK (inr j))].
  by rewrite (mkwordK _ _ _ (fun l (w : l.-tuple 'I_H) (h : 'I_H) => cof d (at_head (descend t w) h).1.2
    j 0)).
move=> s; apply: (IH (rcons w (Ordinal hH))); first by rewrite size_rcons addSnnS.
by rewrite /descend foldl_rcons.
Qed.

(* a tree that passes is a vector of the kernel, not zero at a column that counts *)
Theorem refutes_kernel t : refutes a0 add mul red nz H d din m live S U L t ->
  exists (z : 'cV[R]_#|column H d din L|) c,
    [/\ Rall L host out *m z = 0, counted c & z (enum_rank c) 0 != 0].
Proof.
case/and4P => d0 din0 /some_zvec[c cc zc]; rewrite cof_all0 appliesE /= applyE semE => /eqP Rz.
by exists (zvec t), c.
Qed.
End Shape.
End Meaning.

