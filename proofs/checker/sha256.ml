(* SHA-256 (FIPS 180-4), for the names of sidecars *)
let primes = let rec go n acc = if List.length acc = 64 then List.rev acc
    else go (n + 1) (if List.exists (fun q -> n mod q = 0) acc then acc else n :: acc) in go 2 []
(* the first 32 bits after the point of a root, by integers *)
let bits power n = let x = Z.root (Z.shift_left (Z.of_int n) (32 * power)) power in Z.to_int (Z.logand x (Z.of_int 0xFFFFFFFF))
let k = Array.of_list (List.map (bits 3) primes)
let start = Array.of_list (List.map (bits 2) (List.filteri (fun i _ -> i < 8) primes))
let hex s =
  let n = String.length s and mask = 0xFFFFFFFF in
  let size = ((n + 8) / 64 + 1) * 64 in
  let b = Bytes.make size '\000' in
  Bytes.blit_string s 0 b 0 n;
  Bytes.set b n '\128';
  Bytes.set_int64_be b (size - 8) (Int64.of_int (8 * n));
  let h = Array.copy start and w = Array.make 64 0 in
  let rot x i = ((x lsr i) lor (x lsl (32 - i))) land mask in
  for block = 0 to (size / 64) - 1 do
    for t = 0 to 15 do w.(t) <- Int32.to_int (Bytes.get_int32_be b ((64 * block) + (4 * t))) land mask done;
    for t = 16 to 63 do
      let x = w.(t - 15) and y = w.(t - 2) in
      let a = rot x 7 lxor rot x 18 lxor (x lsr 3) and c = rot y 17 lxor rot y 19 lxor (y lsr 10) in
      w.(t) <- (w.(t - 16) + a + w.(t - 7) + c) land mask
    done;
    let v = Array.copy h in
    for t = 0 to 63 do
      let e = v.(4) and a = v.(0) in
      let s1 = rot e 6 lxor rot e 11 lxor rot e 25 and s0 = rot a 2 lxor rot a 13 lxor rot a 22 in
      let ch = e land v.(5) lxor (lnot e land mask land v.(6)) in
      let maj = a land v.(1) lxor (a land v.(2)) lxor (v.(1) land v.(2)) in
      let t1 = v.(7) + s1 + ch + k.(t) + w.(t) in
      Array.blit v 0 v 1 7;
      v.(4) <- (v.(4) + t1) land mask;
      v.(0) <- (t1 + s0 + maj) land mask
    done;
    Array.iteri (fun i x -> h.(i) <- (h.(i) + x) land mask) v
  done;
  String.concat "" (Array.to_list (Array.map (Printf.sprintf "%08x") h))
