(* What the verified program rests on, and its OCaml. Numbers of Coq's Z become Zarith's, those of nat become machine integers. *)
From Coq Require Import ZArith Extraction ExtrOcamlBasic ExtrOcamlString ExtrOcamlNatInt.
From mathcomp Require Import all_ssreflect all_algebra.
From Utfproof Require Import Words.
From UtfproofChecker Require Import Layers Integers Streams Witness Hosts Triangular Arithmetic Identity Kernel Certificate.
Print Assumptions certain_sound.
Print Assumptions probable_sound.
Print Assumptions probable_kernel_sound.
Print Assumptions read_file.
Extraction Language OCaml.
Extract Inductive BinNums.Z => "Zar.t" ["Zar.zero" "(fun p -> p)" "(fun p -> Zar.neg p)"]
  "(fun f0 fp fn z -> let s = Zar.sign z in if s = 0 then f0 () else if s > 0 then fp z else fn (Zar.neg z))".
Extract Inductive BinNums.positive => "Zar.t" ["(fun p -> Zar.succ (Zar.shift_left p 1))" "(fun p -> Zar.shift_left p 1)" "Zar.one"]
  "(fun f2p1 f2p f1 p -> if Zar.equal p Zar.one then f1 () else if Zar.is_odd p then f2p1 (Zar.shift_right p 1) else f2p (Zar.shift_right p 1))".
Extract Constant Z.add => "Zar.add".
Extract Constant Z.sub => "Zar.sub".
Extract Constant Z.mul => "Zar.mul".
Extract Constant Z.abs => "Zar.abs".
Extract Constant Z.pow => "Zar.power".
Extract Constant Z.sqrt => "Zar.root".
Extract Constant Z.log2 => "Zar.log".
Extract Constant Z.div => "Zar.floor_div".
Extract Constant Z.modulo => "Zar.floor_mod".
Extract Constant Z.land => "Zar.logand".
Extract Constant Z.lxor => "Zar.logxor".
Extract Constant Z.shiftr => "Zar.right".
Extract Constant Z.eqb => "Zar.equal".
Extract Constant Z.ltb => "Zar.lt".
Extract Constant Z.leb => "Zar.leq".
Extract Constant Z.of_nat => "Zar.of_int".
Extract Constant Z.to_nat => "Zar.nat".
Extract Constant eqn => "(fun (a : int) b -> a = b)".
Extract Constant divn => "(fun a b -> if b = 0 then 0 else a / b)".
Extract Constant modn => "(fun a b -> if b = 0 then a else a mod b)".
Extraction "program.ml" read certain probable passed probable_kernel passed_kernel print ones_of heads_of out_of factor follow silent_ones tested columns inverted tied_targets sense_of numbers listed_at target letter_heads scalar applies plant vanishes_at.
