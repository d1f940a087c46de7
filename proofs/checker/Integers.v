(* Coq's integers Z in any ring, and residues modulo a prime.                                              *)
From Coq Require Import ZArith Lia.
From mathcomp Require Import all_ssreflect all_algebra.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Definition inject (R : ringType) (a : Z) : R :=
  match a with Z0 => 0 | Zpos p => (Pos.to_nat p)%:R | Zneg p => - (Pos.to_nat p)%:R end.

Section Inject.
Variable R : ringType.
Lemma injectE (a : Z) n k : Z.add a (Z.of_nat k) = Z.of_nat n -> inject R a = n%:R - k%:R.
Proof.
case: a => [|p|p] e /=.
- by rewrite (_ : n = k) ?subrr //; lia.
- by rewrite (_ : n = (Pos.to_nat p + k)%N) ?natrD ?addrK // -plusE; lia.
have -> : k = (n + Pos.to_nat p)%N by rewrite -plusE; lia.
by rewrite natrD opprD addrA subrr add0r.
Qed.
Lemma inject_split (a : Z) : exists n k, Z.add a (Z.of_nat k) = Z.of_nat n.
Proof. by exists (Z.to_nat (Z.max a 0)), (Z.to_nat (Z.max (Z.opp a) 0)); lia. Qed.
Lemma inject0 : inject R 0 = 0. Proof. by []. Qed.
Lemma inject1 : inject R 1 = 1. Proof. by rewrite /inject Pos2Nat.inj_1. Qed.
Lemma inject_nat n : inject R (Z.of_nat n) = n%:R.
Proof. by rewrite (@injectE _ n 0) ?subr0 //; lia. Qed.
Lemma injectD a b : inject R (Z.add a b) = inject R a + inject R b.
Proof.
have [n [k e]] := inject_split a; have [n' [k' e']] := inject_split b.
rewrite (injectE e) (injectE e') (@injectE _ (n + n') (k + k')); last by rewrite -!plusE; lia.
by rewrite !natrD opprD addrACA.
Qed.
Lemma injectM a b : inject R (Z.mul a b) = inject R a * inject R b.
Proof.
have [n [k e]] := inject_split a; have [n' [k' e']] := inject_split b.
rewrite (injectE e) (injectE e') (@injectE _ (n * n' + k * k') (n * k' + k * n')); last by rewrite
  -!plusE -!multE; nia.
rewrite mulrBl !mulrBr !opprB !natrD !natrM !opprD -!addrA; congr (_ + _).
by rewrite addrCA addrC -!addrA; congr (_ + _); rewrite [LHS]addrC.
Qed.
End Inject.

Lemma inject_intr (R : ringType) a : inject R a = (inject [ringType of int] a)%:~R.
Proof. by case: a => [|p|p] //=; rewrite ?rmorphN /= pmulrn natz. Qed.
Lemma inject_int_inj : injective (inject [ringType of int]).
Proof.
move=> a b; have [n [k e]] := inject_split a; have [n' [k' e']] := inject_split b.
rewrite (injectE _ e) (injectE _ e') => /eqP; rewrite subr_eq addrAC eq_sym subr_eq -!natrD !natz => /eqP[].
by rewrite -!plusE; lia.
Qed.
Definition nzZ (a : Z) : bool := ~~ Z.eqb a 0.
Lemma inject_nz (F : numDomainType) a : nzZ a = (inject F a != 0).
Proof.
rewrite /nzZ inject_intr intr_eq0; congr (~~ _).
apply/idP/eqP => [/Z.eqb_spec->//|h]; apply/Z.eqb_spec; exact: inject_int_inj.
Qed.

(* trial division *)
Definition primeb (p : Z) : bool :=
  let s := Z.to_nat (Z.sqrt p) in
  [&& Z.ltb 1 p, Z.ltb p (Z.mul (Z.of_nat s.+1) (Z.of_nat s.+1)) &
      all (fun d => ~~ Z.eqb (Z.modulo p (Z.of_nat d)) 0) (iota 2 s.-1)].
Lemma primebP p : primeb p -> Z.lt 1 p /\ prime (Z.to_nat p).
Proof.
rewrite /primeb; move: (Z.to_nat (Z.sqrt p)) => s /and3P[/Z.ltb_lt p1 /Z.ltb_lt ps /allP no]; split=> //.
have q1 : (1 < Z.to_nat p)%N by apply/ltP; lia.
case: (boolP (prime (Z.to_nat p))) => // np; exfalso.
have le : (pdiv (Z.to_nat p) ^ 2 <= Z.to_nat p)%N.
  by rewrite leqNgt; apply: contra np => /(ltn_pdiv2_prime (ltnW q1)).
have d1 : (1 < pdiv (Z.to_nat p))%N by apply: prime_gt1; apply: pdiv_prime.
have ds : (pdiv (Z.to_nat p) <= s)%N.
  apply/leP; move/leP: le; rewrite -mulnn -multE; move: (pdiv _) => d le; nia.
have /no/negP[] : pdiv (Z.to_nat p) \in iota 2 s.-1.
  rewrite mem_iota d1 /=; move/leP: ds; move/ltP: d1; move: (pdiv _) => d d1 ds.
  by apply/ltP; rewrite -!plusE; case: s ds {ps no le} => [|s] /=; lia.
apply/Z.eqb_spec; have /dvdnP[k e] := pdiv_dvd (Z.to_nat p).
apply/Z.mod_divide; first by move/ltP: d1; lia.
by exists (Z.of_nat k); rewrite -Nat2Z.inj_mul multE -e Z2Nat.id; lia.
Qed.

(* residues modulo a prime *)
Section Residues.
Variable p : Z.
Hypothesis pp : primeb p.
Let q := Z.to_nat p.
Notation Fp := [fieldType of 'F_q].
Lemma q_prime : prime q. Proof. by have [] := primebP pp. Qed.
Lemma inject_p : inject Fp p = 0.
Proof.
have [p1 _] := primebP pp; rewrite -[p in LHS](Z2Nat.id p); last by lia.
by rewrite inject_nat; apply/eqP; rewrite -(dvdn_charf (char_Fp q_prime)).
Qed.
Lemma inject_mod a : inject Fp (Z.modulo a p) = inject Fp a.
Proof.
have [p1 _] := primebP pp; rewrite [in RHS](Z.div_mod a p); last by lia.
by rewrite injectD injectM inject_p mul0r add0r.
Qed.
End Residues.
