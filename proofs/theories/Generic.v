(* Random hosts: the algebraic part of "almost surely".                                                *)
(*                                                                                                     *)
(* thm:random_universal_transformer and thm:random-R say that a host with random parameters is         *)
(* universal almost surely. Here: at every m >= M = 2 d (H + ... + H^L) + d_in H^L there is a          *)
(* polynomial P in all parameters of the host, with P(theta0) = 1 at some theta0 and of total degree   *)
(* at most (L + 1) M, such that every parameter choice theta with P(theta) != 0 gives a host that is   *)
(* universal by matching. P is a maximal minor of R_all, the one that is 1 at theta0, the trie host of *)
(* TiedTrie. So the exceptional parameters lie on the zero set of a nonzero polynomial;                *)
(* SchwartzZippel counts them. The same holds for tied (looped) hosts, with untied targets all the     *)
(* same: thm:looped_random-R at m >= M instead of its printed count. Any field F; no hypothesis on     *)
(* H, L, d, d_in.                                                                                      *)
(*                                                                                                     *)
(*   param H d din m I         names of the parameters: the entries of R_Q, R_K, R_V for every slot in *)
(*                             I and every head, and the entries of U                                  *)
(*   host slot th, unembed th  the host with the parameters th; layer l takes its matrices from slot l *)
(*                             (zero matrices if there is none)                                        *)
(*   untied_slot, tied_slot    untied: I = 'I_L, layer l takes slot l; tied: I = unit, one slot for    *)
(*                             all layers                                                              *)
(*   encode S U                the parameters of given matrices (encode_host: every choice of matrices *)
(*                             comes from parameters)                                                  *)
(*   deg_le p k                the polynomial p has total degree at most k                             *)
(*   left_inverse_universal    B R_all = 1 for some B => universal by matching                         *)
(*   generic_universal, generic_universal_untied, generic_universal_tied   the theorem above           *)
From mathcomp Require Import all_ssreflect all_algebra.
From SsrMultinomials Require Import mpoly.
From Utfproof Require Import Transformer Words MatchingSystem Selection Emulation TiedTrie.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

(* a left inverse of the matrix of all the equations yields universality *)
Lemma left_inverse_universal (R : ringType) H d din m L (S : nat -> layer R H d m) (U : 'M[R]_(m, din))
    (B : 'M[R]_(#|column H d din L|, m)) :
  B *m Rall L S U = 1%:M -> universal_by_matching L S U.
Proof. by move=> BR T; exists (Wall L (layers T) *m B); apply/matchesP; rewrite -mulmxA BR mulmx1. Qed.

(* Total degree *)

Section Degree.
Variables (F : fieldType) (N : nat).
Implicit Types (p q : {mpoly F[N]}).

(* p has total degree at most k *)
Definition deg_le p k := (msize p <= k.+1)%N.

Lemma deg_leW p k l : (k <= l)%N -> deg_le p k -> deg_le p l.
Proof. by move=> kl /leq_trans; apply. Qed.

Lemma deg_leM p q k l : deg_le p k -> deg_le q l -> deg_le (p * q) (k + l).
Proof.
rewrite /deg_le; have [->|p0] := eqVneq p 0; first by rewrite mul0r msize0.
have [->|q0] := eqVneq q 0; first by rewrite mulr0 msize0.
by rewrite msizeM // => pk ql; rewrite -subn1 leq_subLR add1n -addnS -addSn leq_add.
Qed.

Lemma deg_le_sum I (r : seq I) (f : I -> {mpoly F[N]}) k :
  (forall i, deg_le (f i) k) -> deg_le (\sum_(i <- r) f i) k.
Proof.
move=> fk; elim/big_rec: _ => [|i p _ pk]; first by rewrite /deg_le msize0.
by apply: leq_trans (msizeD_le _ _) _; rewrite geq_max; apply/andP; split=> //; apply: fk.
Qed.

Lemma deg_le_prod I (r : seq I) (f : I -> {mpoly F[N]}) k :
  (forall i, deg_le (f i) (k i)) -> deg_le (\prod_(i <- r) f i) (\sum_(i <- r) k i).
Proof.
move=> fk; elim/big_rec2: _ => [|i k' p _ pk]; first by rewrite /deg_le msize1.
exact: deg_leM.
Qed.

Definition mx_deg_le a b (A : 'M[{mpoly F[N]}]_(a, b)) k := forall i j, deg_le (A i j) k.

Lemma mx_deg_leM a b c (A : 'M[{mpoly F[N]}]_(a, b)) (B : 'M_(b, c)) k l :
  mx_deg_le A k -> mx_deg_le B l -> mx_deg_le (A *m B) (k + l).
Proof. by move=> Ak Bl i j; rewrite mxE; apply: deg_le_sum => u; apply: deg_leM. Qed.

Lemma mx_deg_le1 a : mx_deg_le (1%:M : 'M[{mpoly F[N]}]_a) 0.
Proof. by move=> i j; rewrite mxE /deg_le; case: eqP; rewrite ?msize1 ?msize0. Qed.

Lemma mx_deg_leC a b (A : 'M[F]_(a, b)) : mx_deg_le (map_mx (@mpolyC N F) A) 0.
Proof. by move=> i j; rewrite mxE /deg_le msizeC; case: (A i j != 0). Qed.

Lemma deg_le_det a (A : 'M[{mpoly F[N]}]_a) k : mx_deg_le A k -> deg_le (\det A) (a * k).
Proof.
move=> Ak; apply: deg_le_sum => s; rewrite -[(a * k)%N]add0n; apply: deg_leM.
  by rewrite /deg_le; case: (perm.odd_perm s); rewrite ?expr0 ?expr1 ?msizeN msize1.
have -> : (a * k = \sum_(i < a) k)%N by rewrite sum_nat_const card_ord.
exact: deg_le_prod.
Qed.

End Degree.

(* The parameters of a host *)

Section Parameters.
Variables (H d din m : nat) (I : finType) (slot : nat -> option I).

Definition param := [finType of I * 'I_H * 'I_m * 'I_d + I * 'I_H * 'I_m * 'I_d
                                + I * 'I_H * 'I_m * 'I_m + 'I_m * 'I_din].
Notation N := #|param|.

Section Decode.
Variables (A : ringType) (th : 'I_N -> A).

Definition read (l : nat) (x : I -> param) : A :=
  if slot l is Some s then th (enum_rank (x s)) else 0.

Definition host (l : nat) : layer A H d m := Layer
  (fun h => \matrix_(i, j) read l (fun s => inl (inl (inl (s, h, i, j)))))
  (fun h => \matrix_(i, j) read l (fun s => inl (inl (inr (s, h, i, j)))))
  (fun h => \matrix_(i, j) read l (fun s => inl (inr (s, h, i, j)))).

Definition unembed : 'M[A]_(m, din) := \matrix_(i, j) th (enum_rank (inr (i, j) : param)).

End Decode.

(* every choice of matrices comes from parameters *)
Section Encode.
Variables (A : ringType) (S : I -> layer A H d m) (U : 'M[A]_(m, din)).

Definition encode (x : 'I_N) : A := match enum_val x with
  | inl (inl (inl (s, h, i, j))) => lQ (S s) h i j
  | inl (inl (inr (s, h, i, j))) => lK (S s) h i j
  | inl (inr (s, h, i, j)) => lV (S s) h i j
  | inr (i, j) => U i j end.

Lemma encode_host l s : slot l = Some s ->
  [/\ forall h, lQ (host encode l) h = lQ (S s) h,
      forall h, lK (host encode l) h = lK (S s) h &
      forall h, lV (host encode l) h = lV (S s) h].
Proof. by move=> ls; split=> h; apply/matrixP => i j; rewrite mxE /read ls /encode enum_rankK. Qed.

Lemma encode_unembed : unembed encode = U.
Proof. by apply/matrixP => i j; rewrite mxE /encode enum_rankK. Qed.

End Encode.

(* R_all of a specialisation is the specialisation of R_all *)
Section Map.
Variables (A B : ringType) (f : {rmorphism A -> B}) (th : 'I_N -> A) (th' : 'I_N -> B).
Hypothesis fth : forall i, f (th i) = th' i.

Lemma map_read l x : f (read th l x) = read th' l x.
Proof. by rewrite /read; case: (slot l) => [s|]; rewrite ?rmorph0. Qed.

Lemma map_wprod l0 w : map_mx f (wprod (values (host th)) l0 w) = wprod (values (host th')) l0 w.
Proof.
elim: w l0 => [|h w IH] l0 /=; first by rewrite map_mx1.
rewrite map_mxM IH; congr (_ *m _); apply/matrixP => i j; rewrite !mxE; exact: map_read.
Qed.

Lemma map_Rall L : map_mx f (Rall L (host th) (unembed th)) = Rall L (host th') (unembed th').
Proof.
rewrite map_pack; apply: eq_pack => [l w h _|l w h _|w]; rewrite map_mxM map_wprod;
  congr (_ *m _); apply/matrixP => i j; rewrite !mxE; try exact: map_read.
exact: fth.
Qed.

End Map.

(* The generic host, whose entries are indeterminates: R_all has degree at most L + 1 *)
Section Indeterminates.
Variables (F : fieldType).

Definition indet (i : 'I_N) : {mpoly F[N]} := 'X_i.

Lemma deg_le_read l x : deg_le (read indet l x) 1.
Proof. by rewrite /read /deg_le; case: (slot l) => [s|]; rewrite ?msize0 // msizeX mdeg1. Qed.

Lemma deg_le_wprod l0 w : mx_deg_le (wprod (values (host indet)) l0 w) (size w).
Proof.
elim: w l0 => [|h w IH] l0 /=; first exact: mx_deg_le1.
by rewrite -[(size w).+1]add1n; apply: mx_deg_leM => // i j; rewrite mxE; apply: deg_le_read.
Qed.

Lemma deg_le_Rall L : mx_deg_le (Rall L (host indet) (unembed indet)) L.+1.
Proof.
move=> i c; rewrite mxE; case: (enum_val c) => [[w j]|[w j]].
  have read_le (G : 'M[{mpoly F[N]}]_(m, d)) j' : mx_deg_le G 1 ->
      deg_le ((wprod (values (host indet)) 0 (prew w) *m G) i j') L.+1.
    move=> G1; apply: (@deg_leW _ _ _ (size (prew w) + 1)).
      by rewrite size_tuple addn1 ltnS ltnW // ltn_ord.
    exact: (mx_deg_leM (@deg_le_wprod 0 (prew w)) G1).
  by case: (split j) => j'; apply: read_le => u v; rewrite mxE; apply: deg_le_read.
have := mx_deg_leM (@deg_le_wprod 0 w) (l := 1) (B := unembed indet).
rewrite size_tuple addn1; apply=> u v.
by rewrite mxE /indet /deg_le msizeX mdeg1.
Qed.

End Indeterminates.
End Parameters.

Section Generic.
Variables (F : fieldType) (H d din L m : nat) (I : finType) (slot : nat -> option I).
Hypothesis slotP : forall l, (l < L)%N -> slot l.
Hypothesis m_big : (matching_dimension H L d din <= m)%N.
Notation N := #|param H d din m I|.

(* Universal by matching outside the zero set of a nonzero polynomial of degree at most (L + 1) M. *)
Theorem generic_universal : exists (P : {mpoly F[N]}) (th0 : 'I_N -> F),
  [/\ P.@[th0] = 1, (msize P <= (matching_dimension H L d din * L.+1).+1)%N &
      forall th : 'I_N -> F, P.@[th] != 0 -> universal_by_matching L (host slot th) (unembed th)].
Proof.
move: m_big => /subnKC <-; set k := (m - _)%N; rewrite -card_coord.
pose B := selC F H L d din k.
pose X := @indet H d din #|coord H L d din k| I F.
pose P := \det (map_mx (@mpolyC _ F) B *m Rall L (host slot X) (unembed X)).
have PE th : P.@[th] = \det (B *m Rall L (host slot th) (unembed th)).
  rewrite -det_map_mx map_mxM (@map_Rall _ _ _ _ _ _ _ _ _ _ th) => [|i]; last exact: mevalXU.
  by congr (\det (_ *m _)); apply/matrixP => i j; rewrite 2![map_mx _ _ _ _]mxE; apply: mevalC.
pose th0 := encode (fun _ : I => trie_host F H L d din k) (trie_U F H L d din k).
exists P, th0; split=> [||th]; last 1 first.
- rewrite PE -unitfE -unitmxE => Pth.
  apply: (@left_inverse_universal _ _ _ _ _ _ _ _ (invmx (B *m Rall L (host slot th) (unembed th)) *m B)).
  by rewrite -mulmxA mulVmx.
- rewrite PE -(det1 _ #|column H d din L|) -(trie_left_inverse F H L d din k); congr (\det (_ *m _)).
  have e0 l : (l < L)%N -> [/\ forall h, lQ (host slot th0 l) h = @trieQ F H L d din k h,
      forall h, lK (host slot th0 l) h = @trieK F H L d din k h &
      forall h, lV (host slot th0 l) h = @trieV F H L d din k h].
    move=> /slotP; case ls: (slot l) => [s|] // _; exact: encode_host ls.
  have w0 l (w : l.-tuple 'I_H) : (l <= L)%N ->
      wprod (values (host slot th0)) 0 w = wprod (values (fun=> trie_host F H L d din k)) 0 w.
    move=> lL; apply: eq_wprod => l' h; rewrite add0n size_tuple => /= l'l.
    by have [_ _ eV] := e0 _ (leq_trans l'l lL); apply: eV.
  apply: eq_pack => [l w h lL|l w h lL|w].
  + by have [-> _ _] := e0 _ lL; rewrite w0 // ltnW.
  + by have [_ -> _] := e0 _ lL; rewrite w0 // ltnW.
  + by rewrite w0 // encode_unembed.
- rewrite -card_column; apply: deg_le_det; rewrite -[L.+1]add0n.
  apply: mx_deg_leM; [exact: mx_deg_leC | exact: deg_le_Rall].
Qed.
End Generic.

(* The untied parametrisation (thm:random_universal_transformer, thm:random-R): L slots, layer l takes
   slot l. *)

Definition untied_slot L (l : nat) : option 'I_L := insub l.

Lemma untied_slotP L l : (l < L)%N -> untied_slot L l.
Proof. by move=> lL; rewrite /untied_slot insubT. Qed.

(* The tied parametrisation (looped hosts): one slot for all layers. *)

Definition tied_slot (l : nat) : option unit := Some tt.

Lemma tied_slotP L l : (l < L)%N -> tied_slot l.
Proof. by []. Qed.

Section Named.
Variables (F : fieldType) (H d din L m : nat).
Hypothesis m_big : (matching_dimension H L d din <= m)%N.

Theorem generic_universal_untied :
  exists (P : {mpoly F[#|param H d din m [finType of 'I_L]|]}) th0,
  [/\ P.@[th0] = 1, (msize P <= (matching_dimension H L d din * L.+1).+1)%N &
      forall th, P.@[th] != 0 -> universal_by_matching L (host (@untied_slot L) th) (unembed th)].
Proof. exact: generic_universal (@untied_slotP L) m_big. Qed.

Theorem generic_universal_tied :
  exists (P : {mpoly F[#|param H d din m [finType of unit]|]}) th0,
  [/\ P.@[th0] = 1, (msize P <= (matching_dimension H L d din * L.+1).+1)%N &
      forall th, P.@[th] != 0 -> universal_by_matching L (host tied_slot th) (unembed th)].
Proof. exact: generic_universal (@tied_slotP L) m_big. Qed.

End Named.
