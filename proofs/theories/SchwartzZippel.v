(* How rare are bad parameters? Nonzero polynomials vanish rarely.                                     *)
(*                                                                                                     *)
(* Generic gives a nonzero polynomial P in the N parameters of a host, of total degree at most         *)
(* D = (L + 1) M, such that P(theta) != 0 makes the host universal by matching. Here are two ways in   *)
(* which P(theta) = 0 is exceptional.                                                                  *)
(*                                                                                                     *)
(* Draw the parameters one after the other: when a parameter is drawn, only the finitely many roots of *)
(* a nonzero univariate polynomial, determined by the earlier parameters, must be avoided.             *)
(*   one_by_one               for any P with a value other than 0                                      *)
(*   one_by_one_universal, one_by_one_untied, one_by_one_tied   for hosts                              *)
(*                                                                                                     *)
(* Draw them independently and uniformly from a finite set A of s points: P vanishes with probability  *)
(* at most (total degree of P) / s. This is the Schwartz-Zippel lemma in its textbook (total degree)   *)
(* form, over any integral domain; A is given by an injective enumeration a : 'I_s -> F.               *)
(*   schwartz_zippel          #zeros * s <= degree * s^n                                               *)
(*   schwartz_zippel_pred     #zeros <= degree * s^(n - 1)                                             *)
(*   grid_universal, grid_universal_untied, grid_universal_tied                                        *)
(*                            of the s^N hosts with parameters in A all but at most D s^(N - 1) are    *)
(*                            universal by matching                                                    *)
(*   grid_universal_ex        if s > D, one of them is                                                 *)
(*                                                                                                     *)
(* This is the algebra behind "almost surely" in thm:random_universal_transformer, thm:random-R and,   *)
(* at m >= M, thm:looped_random-R. What remains informal: that the zero set of a nonzero real          *)
(* polynomial has Lebesgue measure zero, so that the event has probability 0 under every absolutely    *)
(* continuous law. one_by_one is its core (at each step a finite set of values is excluded); the rest  *)
(* is Fubini's theorem.                                                                                *)
From mathcomp Require Import all_ssreflect all_algebra.
From SsrMultinomials Require Import mpoly.
From Utfproof Require Import Transformer Words MatchingSystem Generic.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

(* One variable at a time *)

Section OneByOne.
Variables (F : fieldType) (N : nat) (P : {mpoly F[N]}) (th0 : 'I_N -> F).
Hypothesis P0 : P.@[th0] != 0.

(* the first i values of th, the others from th0; and P along the i-th coordinate there *)
Definition hybrid (th : 'I_N -> F) (i : nat) (j : 'I_N) : F := if (j < i)%N then th j else th0 j.
Definition line (th : 'I_N -> F) (i : 'I_N) : {poly F} :=
  mmap (@polyC F) (fun j : 'I_N => if j == i then 'X else (hybrid th i j)%:P) P.

Lemma line_eval th i x : (line th i).[x] = P.@[fun j => if j == i then x else hybrid th i j].
Proof.
rewrite mevalE /line /mmap horner_sum; apply: eq_bigr => m _.
rewrite hornerM hornerC horner_prod; congr (_ * _); apply: eq_bigr => j _.
by rewrite horner_exp; case: eqP => _; rewrite ?hornerX ?hornerC.
Qed.

(* the polynomial whose roots are the forbidden values of the i-th parameter *)
Definition forbid (th : 'I_N -> F) (i : 'I_N) : {poly F} :=
  if line th i == 0 then 1 else line th i.

Lemma forbid_neq0 th i : forbid th i != 0.
Proof. by rewrite /forbid; case: ifP => [_|->//]; apply: oner_neq0. Qed.

(* it depends on the earlier parameters only *)
Lemma forbid_ext th th' (i : 'I_N) : (forall j : 'I_N, (j < i)%N -> th j = th' j) ->
  forbid th i = forbid th' i.
Proof.
move=> e; suff e' : line th i = line th' i by rewrite /forbid e'.
apply: eq_bigr => m _; congr (_ * _); apply: eq_bigr => j _; congr (_ ^+ _).
by rewrite /hybrid; case: eqP => // _; case: ltnP => // /e ->.
Qed.

Theorem one_by_one th : (forall i, ~~ root (forbid th i) (th i)) -> P.@[th] != 0.
Proof.
move=> ok; have hybridP i : (i <= N)%N -> P.@[hybrid th i] != 0.
  elim: i => [|i IH] iN; first by rewrite (_ : P.@[_] = P.@[th0]) //; apply: meval_eq.
  have e1 := line_eval th (Ordinal iN) (th0 (Ordinal iN)).
  have l0 : line th (Ordinal iN) != 0.
    apply: contraTneq (IH (ltnW iN)) => l0; rewrite l0 horner0 in e1.
    rewrite negbK e1; apply/eqP/meval_eq => j; case: eqP => // ->.
    by rewrite /hybrid ltnn.
  have := ok (Ordinal iN); rewrite /forbid (negbTE l0) rootE line_eval.
  rewrite (_ : P.@[fun j => if j == Ordinal iN then _ else _] = P.@[hybrid th i.+1]) //.
  apply: meval_eq => j; rewrite /hybrid; case: eqP => [->|/eqP nj] /=; first by rewrite ltnSn.
  by rewrite ltnS [(j <= i)%N]leq_eqVlt (negbTE (nj : (j != i :> nat))).
rewrite (_ : P.@[th] = P.@[hybrid th N]) ?hybridP //; apply: meval_eq => j.
by rewrite /hybrid ltn_ord.
Qed.

End OneByOne.

(* A polynomial in n + 1 variables as a univariate polynomial in the last one *)

Section LastVariable.
Variables (F : idomainType) (n : nat).
Implicit Types (P : {mpoly F[n.+1]}) (u : 'X_{1..n}) (j : nat).

Notation widen i := (widen_ord (leqnSn n) i).

(* the exponents u of the first n variables and j of the last *)
Definition mnm_join u j : 'X_{1..n.+1} :=
  [multinom if unlift ord_max i is Some i' then u i' else j | i < n.+1].

Lemma mnm_join_widen u j (i : 'I_n) : mnm_join u j (widen i) = u i.
Proof.
rewrite mnmE (_ : widen i = lift ord_max i) ?liftK //.
by apply: val_inj; rewrite /= /bump leqNgt ltn_ord.
Qed.

Lemma mnm_join_max u j : mnm_join u j ord_max = j.
Proof. by rewrite mnmE unlift_none. Qed.

Lemma mnm_joinP (m : 'X_{1..n.+1}) u j :
  (m == mnm_join u j) = ([multinom m (widen i) | i < n] == u) && (m ord_max == j).
Proof.
apply/eqP/andP => [->|[/eqP<- /eqP<-]].
  by split; apply/eqP; [apply/mnmP => i; rewrite mnmE mnm_join_widen | rewrite mnm_join_max].
apply/mnmP => i; rewrite mnmE; case: unliftP => [i' ->|->] //; rewrite mnmE; congr (m _).
by apply: val_inj; rewrite /= /bump leqNgt ltn_ord.
Qed.

Lemma mdeg_join u j : mdeg (mnm_join u j) = (mdeg u + j)%N.
Proof.
rewrite !mdegE big_ord_recr mnm_join_max; congr (_ + _)%N.
by apply: eq_bigr => i _; apply: mnm_join_widen.
Qed.

Lemma coef_muni P u j : (muni P)`_j@_u = P@_(mnm_join u j).
Proof.
rewrite muniE coef_sum [in RHS](mpolyE P) !raddf_sum; apply: eq_bigr => m _ /=.
rewrite coefZ coefXn [RHS]mcoeffZ mcoeffX mnm_joinP.
rewrite [m ord_max == j]eq_sym; case: (j == _); last by rewrite mulr0 mcoeff0 andbF mulr0.
by rewrite mulr1 mcoeffZ mcoeffX andbT.
Qed.

Lemma muni_neq0 P : P != 0 -> muni P != 0.
Proof.
apply: contra_neq => P0; apply/mpolyP => m; rewrite mcoeff0.
have /eqP-> : m == mnm_join [multinom m (widen i) | i < n] (m ord_max) by rewrite mnm_joinP !eqxx.
by rewrite -coef_muni P0 coef0 mcoeff0.
Qed.

Lemma meval_muni P (v : 'I_n.+1 -> F) :
  P.@[v] = (map_poly (meval (fun i => v (widen i))) (muni P)).[v ord_max].
Proof.
rewrite mevalE muniE rmorph_sum horner_sum; apply: eq_bigr => m _.
rewrite /= map_polyZ map_polyXn hornerZ hornerXn /= mevalZ mevalX big_ord_recr mulrA.
by congr (_ * _ * _); apply: eq_bigr => i _; rewrite mnmE.
Qed.

End LastVariable.

(* The Schwartz-Zippel lemma *)

Section SchwartzZippel.
Variables (F : idomainType) (s : nat) (a : 'I_s -> F).
Hypothesis a_inj : injective a.

(* the points of the grid A^n, and the zeros of P on it *)
Definition point n (x : {ffun 'I_n -> 'I_s}) (i : 'I_n) : F := a (x i).
Definition zeros n (P : {mpoly F[n]}) := [set x : {ffun 'I_n -> 'I_s} | P.@[point x] == 0].

(* one variable *)
Lemma zeros_poly (p : {poly F}) k : p != 0 -> (size p <= k.+1)%N ->
  (#|[set t | root p (a t)]| <= k)%N.
Proof.
move=> p0 pk; rewrite cardE -(size_map a) -ltnS; apply: leq_trans pk.
apply: max_poly_roots p0 _ _; last by rewrite map_inj_uniq ?enum_uniq.
by apply/allP => _ /mapP[t + ->]; rewrite mem_enum inE.
Qed.

(* a point of A^(n + 1) is a point of A^n and a last coordinate *)
Definition extend n (y : {ffun 'I_n -> 'I_s} * 'I_s) : {ffun 'I_n.+1 -> 'I_s} :=
  [ffun i => if unlift ord_max i is Some i' then y.1 i' else y.2].

Lemma extend_bij n : bijective (@extend n).
Proof.
exists (fun x : {ffun 'I_n.+1 -> 'I_s} => ([ffun i => x (lift ord_max i)], x ord_max)) => [[y t]|x].
  by congr pair; [apply/ffunP => i; rewrite !ffunE liftK | rewrite ffunE unlift_none].
by apply/ffunP => i; rewrite ffunE; case: unliftP => [i' ->|->] //=; rewrite ffunE.
Qed.

Lemma card_zeros_rec n (P : {mpoly F[n.+1]}) :
  #|zeros P| = (\sum_(y : {ffun 'I_n -> 'I_s})
                  #|[set t | root (map_poly (meval (point y)) (muni P)) (a t)]|)%N.
Proof.
rewrite -sum1_card big_mkcond (reindex (@extend n)) /=; last exact/onW_bij/extend_bij.
rewrite -(pair_bigA _ (fun y t => if extend (y, t) \in zeros P then 1 else 0)%N) /=.
apply: eq_bigr => y _; rewrite -sum1_card [RHS]big_mkcond /=; apply: eq_bigr => t _.
rewrite !inE /root meval_muni /point ffunE unlift_none.
rewrite (@eq_map_poly _ _ _ (meval (point y))) // => p; apply: meval_eq => i.
rewrite ffunE (_ : widen_ord _ i = lift ord_max i) ?liftK //.
by apply: val_inj; rewrite /= /bump leqNgt ltn_ord.
Qed.

(* no variables: a nonzero constant *)
Lemma zeros_const (P : {mpoly F[0]}) : P != 0 -> zeros P = set0.
Proof.
move=> P0; apply/setP => x; rewrite !inE; apply: negbTE.
have PC : P = (P@_0)%:MP.
  by apply: msize1_polyC; rewrite msizeE; apply/bigmax_leqP_seq => m _ _; rewrite mdegE big_ord0.
by rewrite PC mevalC; apply: contra_neq P0; rewrite {2}PC => ->.
Qed.

(* A nonzero polynomial of total degree at most d has at most d s^(n - 1) zeros among the s^n points of
   A^n: it vanishes at a random point of A^n with probability at most d / s. *)
Theorem schwartz_zippel n (P : {mpoly F[n]}) d : P != 0 -> (msize P <= d.+1)%N ->
  (#|zeros P| * s <= d * s ^ n)%N.
Proof.
elim: n P d => [|n IH] P d P0 Pd.
  by rewrite zeros_const ?cards0.
have p0 := muni_neq0 P0; set p := muni P in p0.
pose k := (size p).-1; pose Q := p`_k.
have Q0 : Q != 0 by rewrite /Q -lead_coefE lead_coef_eq0.
have degQ m : m \in msupp Q -> (mdeg m + k <= d)%N.
  rewrite mcoeff_msupp coef_muni -mcoeff_msupp => /msize_mdeg_lt.
  by rewrite mdeg_join => /leq_trans/(_ Pd); rewrite ltnS.
have kd : (k <= d)%N by apply: leq_trans (degQ _ (mlead_supp Q0)); apply: leq_addl.
have Qd : (msize Q <= (d - k).+1)%N.
  rewrite msizeE; apply/bigmax_leqP_seq => m mQ _.
  by rewrite ltnS -(leq_add2r k) subnK ?degQ.
have fiber y : (#|[set t | root (map_poly (meval (point y)) p) (a t)]| <= (y \in zeros Q) * s + k)%N.
  case: (boolP (y \in zeros Q)) => [_|]; rewrite ?mul1n ?mul0n ?add0n.
    by apply: leq_trans (max_card _) _; rewrite card_ord leq_addr.
  rewrite inE => Qy; apply: zeros_poly; last first.
    by apply: leq_trans (size_poly _ _) _; rewrite /k leqSpred.
  by apply: contraNneq Qy => e; rewrite -[Q.@[_]]/(meval _ _) -coef_map e coef0.
have count : (#|zeros P| <= #|zeros Q| * s + s ^ n * k)%N.
  rewrite card_zeros_rec; apply: leq_trans (leq_sum _ (fun y _ => fiber y)) _.
  rewrite big_split /= -big_distrl /= sum_nat_const card_ffun !card_ord leq_add2r.
  by rewrite -sum1_card [X in (_ <= X * _)%N]big_mkcond.
apply: leq_trans (leq_mul count (leqnn s)) _.
rewrite mulnDl -[X in (_ <= X * _)%N](subnK kd) mulnDl leq_add //; last by rewrite expnSr mulnCA mulnA.
by rewrite expnSr mulnA leq_mul // IH.
Qed.

Corollary schwartz_zippel_pred n (P : {mpoly F[n]}) d : P != 0 -> (msize P <= d.+1)%N ->
  (#|zeros P| <= d * s ^ n.-1)%N.
Proof.
case: n P => [|n] P P0 Pd; first by rewrite zeros_const ?cards0.
case: (posnP s) => [s0|s_gt0]; last first.
  by have := schwartz_zippel P0 Pd; rewrite expnSr mulnA leq_pmul2r.
apply: leq_trans (max_card _) _.
by rewrite card_ffun !card_ord s0 exp0n.
Qed.

End SchwartzZippel.

(* Random hosts *)

Section Hosts.
Variables (F : fieldType) (H d din L m : nat) (I : finType) (slot : nat -> option I).
Hypothesis slotP : forall l, (l < L)%N -> slot l.
Hypothesis m_big : (matching_dimension H L d din <= m)%N.
Notation N := #|param H d din m I|.
Notation D := (matching_dimension H L d din * L.+1)%N.

(* The parameters are drawn one after the other; when the i-th one is drawn, only the roots of a nonzero
   polynomial determined by the previous ones must be avoided. Then the host is universal by matching. *)
Theorem one_by_one_universal : exists q : ('I_N -> F) -> 'I_N -> {poly F},
  [/\ forall th i, q th i != 0,
      forall th th' (i : 'I_N), (forall j : 'I_N, (j < i)%N -> th j = th' j) -> q th i = q th' i &
      forall th : 'I_N -> F, (forall i, ~~ root (q th i) (th i)) ->
        universal_by_matching L (host slot th) (unembed th)].
Proof.
have [P [th0 [P0 _ univ]]] := generic_universal F slotP m_big.
exists (forbid P th0); split=> [th i|th th' i|th ok].
- exact: forbid_neq0.
- exact: forbid_ext.
- by apply/univ/(one_by_one _ ok); rewrite P0 oner_neq0.
Qed.

(* Parameters from a set of s points, the values of a: among the s^N hosts at most D s^(N - 1), a share
   of D / s, are not universal by matching; D = (L + 1) M. *)
Variables (s : nat) (a : 'I_s -> F).
Hypothesis a_inj : injective a.

Theorem grid_universal : exists bad : {set {ffun 'I_N -> 'I_s}},
  [/\ (#|bad| * s <= D * s ^ N)%N, (#|bad| <= D * s ^ N.-1)%N &
      forall x, x \notin bad -> universal_by_matching L (host slot (point a x)) (unembed (point a x))].
Proof.
have [P [th0 [P0 PD univ]]] := generic_universal F slotP m_big.
have Pneq0 : P != 0 by apply: contra_eq_neq P0 => ->; rewrite meval0 eq_sym oner_neq0.
exists (zeros a P); split=> [||x].
- exact: schwartz_zippel.
- exact: schwartz_zippel_pred.
- by rewrite inE; apply: univ.
Qed.

(* with more than D points to choose from, some host is universal *)
Corollary grid_universal_ex : (D < s)%N ->
  exists x : {ffun 'I_N -> 'I_s}, universal_by_matching L (host slot (point a x)) (unembed (point a x)).
Proof.
move=> Ds; have [bad [badP _ univ]] := grid_universal.
have s0 : (0 < s)%N by apply: leq_ltn_trans Ds.
have /subsetPn[x _ xbad] : ~~ ([set: {ffun 'I_N -> 'I_s}] \subset bad).
  rewrite subTset; apply: contraTneq badP => ->.
  by rewrite cardsT card_ffun !card_ord mulnC -ltnNge ltn_pmul2r // expn_gt0 s0.
by exists x; apply: univ.
Qed.

End Hosts.

(* The untied parametrisation (thm:random_universal_transformer, thm:random-R) and the tied one (looped
   hosts, untied targets) *)

Section Named.
Variables (F : fieldType) (H d din L m : nat).
Hypothesis m_big : (matching_dimension H L d din <= m)%N.
Notation N I := #|param H d din m I|.
Notation D := (matching_dimension H L d din * L.+1)%N.

Corollary one_by_one_untied (N := N [finType of 'I_L]) :
  exists q : ('I_N -> F) -> 'I_N -> {poly F},
  [/\ forall th i, q th i != 0,
      forall th th' (i : 'I_N), (forall j : 'I_N, (j < i)%N -> th j = th' j) -> q th i = q th' i &
      forall th : 'I_N -> F, (forall i, ~~ root (q th i) (th i)) ->
        universal_by_matching L (host (@untied_slot L) th) (unembed th)].
Proof. exact: one_by_one_universal (@untied_slotP L) m_big. Qed.

Corollary one_by_one_tied (N := N [finType of unit]) :
  exists q : ('I_N -> F) -> 'I_N -> {poly F},
  [/\ forall th i, q th i != 0,
      forall th th' (i : 'I_N), (forall j : 'I_N, (j < i)%N -> th j = th' j) -> q th i = q th' i &
      forall th : 'I_N -> F, (forall i, ~~ root (q th i) (th i)) ->
        universal_by_matching L (host tied_slot th) (unembed th)].
Proof. exact: one_by_one_universal (@tied_slotP L) m_big. Qed.

Variables (s : nat) (a : 'I_s -> F).
Hypothesis a_inj : injective a.

Corollary grid_universal_untied (N := N [finType of 'I_L]) :
  exists bad : {set {ffun 'I_N -> 'I_s}},
  [/\ (#|bad| * s <= D * s ^ N)%N, (#|bad| <= D * s ^ N.-1)%N &
      forall x, x \notin bad ->
        universal_by_matching L (host (@untied_slot L) (point a x)) (unembed (point a x))].
Proof. exact: grid_universal (@untied_slotP L) m_big s a a_inj. Qed.

Corollary grid_universal_tied (N := N [finType of unit]) :
  exists bad : {set {ffun 'I_N -> 'I_s}},
  [/\ (#|bad| * s <= D * s ^ N)%N, (#|bad| <= D * s ^ N.-1)%N &
      forall x, x \notin bad ->
        universal_by_matching L (host tied_slot (point a x)) (unembed (point a x))].
Proof. exact: grid_universal (@tied_slotP L) m_big s a a_inj. Qed.

End Named.
