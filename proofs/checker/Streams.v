(* A residual stream as one more head, the silent one: it reads nothing and its value matrix is the        *)
(* identity. Letter 0 is the stream, letter h+1 is head h.                                                 *)
(*                                                                                                         *)
(*   silent S          the host with that head in front                                                    *)
(*   down              the residual column that a column of it is; none where the silent head reads        *)
(*   silent_columns    R_all of silent S is the residual R_all, but for columns of zeros                   *)
(*   rank_silent       so its rank is no larger                                                            *)
(*   res_kernel        and its kernel vectors are those of the residual R_all                              *)
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Transformer Words MatchingSystem Residual ResidualWords ResidualSystem.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

(* only the entries of layers matter *)
Lemma eq_Rall (R : ringType) H d m dout L (S S' : nat -> layer R H d m) (U : 'M[R]_(m, dout)) :
  (forall l h, [/\ lQ (S l) h = lQ (S' l) h, lK (S l) h = lK (S' l) h & lV (S l) h = lV (S' l) h]) ->
  Rall L S U = Rall L S' U.
Proof.
move=> e; have ew w : wprod (values S) 0 w = wprod (values S') 0 w.
  by apply: eq_wprod => l h _; rewrite /values; have [_ _ ->] := e l h.
by apply: eq_pack => [l w h _|l w h _|w]; rewrite ew //; have [eQ eK _] := e l h; rewrite ?eQ ?eK.
Qed.

Lemma eq_res_Rall (R : ringType) H d m dout L (S S' : nat -> layer R H d m) (U : 'M[R]_(m, dout)) :
  (forall l h, [/\ lQ (S l) h = lQ (S' l) h, lK (S l) h = lK (S' l) h & lV (S l) h = lV (S' l) h]) ->
  res_Rall L S U = res_Rall L S' U.
Proof.
move=> e; have ew w l : res_wprod (values S) l w = res_wprod (values S') l w.
  by elim: w l => //= -[h|] w IH l; rewrite IH //= /values; have [_ _ ->] := e l h.
by apply: eq_res_pack => [l w h _|l w h _|w]; rewrite ew //; have [eQ eK _] := e l h; rewrite ?eQ ?eK.
Qed.

(* every column of A is zero or one of B *)
Lemma rank_columns (F : fieldType) m n k (A : 'M[F]_(m, n)) (B : 'M[F]_(m, k)) (f : 'I_n -> option 'I_k) :
  (forall i c, A i c = if f c is Some x then B i x else 0) -> (\rank A <= \rank B)%N.
Proof.
move=> e; suff -> : A = B *m \matrix_(x, c) (f c == Some x)%:R by exact: mxrankM_maxl.
apply/matrixP => i c; rewrite e mxE; under eq_bigr => x _ do rewrite mxE.
case: (f c) => [x|]; last by rewrite big1 // => x _; rewrite mulr0.
rewrite (bigD1 x) //= eqxx mulr1 big1 ?addr0 // => y /negbTE ne.
by rewrite (inj_eq (@Some_inj _)) eq_sym ne mulr0.
Qed.

Section Silent.
Variables (R : ringType) (H d m dout L : nat) (S : nat -> layer R H d m) (U : 'M[R]_(m, dout)).
Definition letter_of (h : 'I_H.+1) : option 'I_H := unlift ord0 h.
Lemma letter_of_inj : injective letter_of.
Proof.
by move=> h k; rewrite /letter_of; case: unliftP => [a ->|->]; case: unliftP => [b ->|->] // [->].
Qed.
Definition silent (l : nat) : layer R H.+1 d m := Layer
  (fun h => if letter_of h is Some h then lQ (S l) h else 0)
  (fun h => if letter_of h is Some h then lK (S l) h else 0)
  (fun h => if letter_of h is Some h then lV (S l) h else 1%:M).
Lemma wprod_silent w l : wprod (values silent) l w = res_wprod (values S) l (map letter_of w).
Proof. by elim: w l => //= h w IH l; rewrite IH /values /=; case: (letter_of h). Qed.

Definition down (c : column H.+1 d dout L) : option (res_column H d dout L) := match c with
  | inl (w, j) => if letter_of (lastw w) is Some h
      then Some (inl (existT _ (tag w) ([tuple of map letter_of (prew w)], h), j)) else None
  | inr (w, j) => Some (inr ([tuple of map letter_of w], j)) end.
Lemma down_inj c c' x : down c = Some x -> down c' = Some x -> c = c'.
Proof.
have whole (w w' : word H.+1 L) h h' : letter_of (lastw w) = Some h -> letter_of (lastw w') = Some h' ->
    existT _ (tag w) ([tuple of map letter_of (prew w)], h) = existT _ (tag w') ([tuple of map letter_of (prew w')], h')
      :> res_read H L -> w = w'.
  move=> eh eh' /(congr1 (fun y : res_read H L => rcons (tval (tagged y).1) (Some (tagged y).2))) /=.
  rewrite -eh -eh' -!map_rcons -!lettersE => /(inj_map letter_of_inj); exact: letters_inj.
case: c => [[w j]|[w j]] /=; case: c' => [[w' j']|[w' j']] /=.
- case e: (letter_of (lastw w)) => [h|] // <-; case e': (letter_of (lastw w')) => [h'|] // E.
  have -> : j = j' by case: E.
  congr (inl (_, _)); apply: (whole _ _ _ _ e e'); apply: esym.
  by have /(@Some_inj _) := congr1 (fun x => if x is Some (inl y) then Some y.1 else None) E.
- by case: (letter_of _) => // h [<-].
- by move=> [<-]; case: (letter_of _).
by move=> [<-] [] /(inj_map letter_of_inj)/val_inj -> ->.
Qed.
Lemma silent_columns i c : Rall L silent U i (enum_rank c) =
  if down c is Some x then res_Rall L S U i (enum_rank x) else 0.
Proof.
rewrite mxE enum_rankK; case: c => [[w j]|[w j]] /=; last by rewrite [RHS]mxE enum_rankK wprod_silent.
by case: (letter_of (lastw w)) => [h|]; [rewrite [RHS]mxE enum_rankK|]; case: (split j) => k;
  rewrite ?wprod_silent // mulmx0 mxE.
Qed.
(* each column to its residual one *)
Definition placed : 'M[R]_(#|res_column H d dout L|, #|column H.+1 d dout L|) :=
  \matrix_(x, c) (down (enum_val c) == Some (enum_val x))%:R.
Lemma RallE : Rall L silent U = res_Rall L S U *m placed.
Proof.
apply/matrixP => i c; rewrite -[c in LHS]enum_valK silent_columns mxE.
under eq_bigr => x _ do rewrite [placed _ _]mxE.
case e: (down (enum_val c)) => [x|]; last by rewrite big1 // => x _; rewrite mulr0.
rewrite (bigD1 (enum_rank x)) //= enum_rankK eqxx mulr1 big1 ?addr0 // => y ne.
by case: eqP => [/(@Some_inj _) xy|_]; [case/eqP: ne; rewrite xy enum_valK | rewrite mulr0].
Qed.
Lemma placed_entry (z : 'cV[R]_#|column H.+1 d dout L|) c x : down c = Some x ->
  (placed *m z) (enum_rank x) 0 = z (enum_rank c) 0.
Proof.
move=> e; rewrite mxE (bigD1 (enum_rank c)) //= mxE !enum_rankK e eqxx mul1r big1 ?addr0 // => c' ne.
rewrite mxE enum_rankK; case: eqP => [e'|_]; last by rewrite mul0r.
by case/eqP: ne; rewrite -[c']enum_valK (down_inj e e').
Qed.
Lemma res_kernel (z : 'cV[R]_#|column H.+1 d dout L|) c : Rall L silent U *m z = 0 -> z (enum_rank c) 0 != 0 ->
  down c -> exists y : 'cV[R]_#|res_column H d dout L|, res_Rall L S U *m y = 0 /\ y != 0.
Proof.
move=> Rz zc; case e: (down c) => [x|] // _; exists (placed *m z).
by rewrite mulmxA -RallE; split=> //; apply: contraNneq zc => y0; rewrite -(placed_entry z e) y0 mxE.
Qed.
End Silent.

Lemma rank_silent (F : fieldType) H d m dout L (S : nat -> layer F H d m) (U : 'M[F]_(m, dout)) :
  (\rank (Rall L (silent S) U) <= \rank (res_Rall L S U))%N.
Proof. by rewrite RallE mxrankM_maxl. Qed.
