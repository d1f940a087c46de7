(* Coq's functions on Z by Zarith's, where the two differ in name or in corner cases *)
include Z
let power a b = if sign b < 0 then zero else pow a (to_int b)
let root a = if sign a <= 0 then zero else sqrt a
let log a = if sign a <= 0 then zero else of_int (Stdlib.pred (numbits a))
let floor_div a b = if sign b = 0 then zero else fdiv a b
let floor_mod a b =
  if sign b = 0 then a
  else
    let r = rem a b in
    if sign r <> 0 && sign r <> sign b then add r b else r
let right a b = if sign b >= 0 then shift_right a (to_int b) else shift_left a (to_int (neg b))
let nat a = if sign a <= 0 then 0 else to_int a
