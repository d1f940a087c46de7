(* utfcheck: reads certificates, hands them to the verified program with hints, prints one verdict each. Most of what is written here
   need not be trusted for a "valid": it can only find bad hints, and reject. To be trusted are that judge answers what the verified
   program says of the claim that it read, that probable is asked before passed, with the same numbers, and that the vectors are
   random. (For certificates about weights from a file, weights.ml and sha256.ml, too.) *)
open Program
open Json

(* an array, inline up to 4096 entries, in a sidecar above *)
let sidecar folder bytes j =
  only [ "dtype"; "length"; "sidecar" ] j;
  let name = word (field "sidecar" j) in
  if word (field "dtype" j) <> Printf.sprintf "uint%d" (8 * bytes) then reject "dtype of a sidecar";
  if not (String.length name = 64 && String.for_all (fun c -> (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')) name) then
    reject "name of a sidecar";
  let path = Filename.concat folder (name ^ ".bin") in
  if not (Sys.file_exists path) || (Unix.lstat path).st_kind <> Unix.S_REG then reject "sidecar is missing";
  let s = contents path in
  if Sha256.hex s <> name then reject "sidecar is not the one named";
  if String.length s mod bytes <> 0 || small_number (field "length" j) <> String.length s / bytes then reject "length of a sidecar";
  Array.init (String.length s / bytes) (fun i ->
      if bytes = 1 then Char.code s.[i]
      else if bytes = 2 then String.get_uint16_le s (2 * i)
      else Int32.to_int (String.get_int32_le s (4 * i)) land 0xFFFFFFFF)
let integers folder ?(bytes = 4) length j =
  let a = match j with
    | Arr l -> if length > 4096 then reject "an array of this length is a sidecar" else Array.of_list (List.map small_number l)
    | _ -> if length <= 4096 then reject "an array of this length is inline" else sidecar folder bytes j in
  if Array.length a <> length then reject "an array of another length" else a

(* columns in canonical order: kind 0 Q, 1 K, 2 OV, the word, the coordinate. With a residual stream letter 0 is the stream and letter
   h+1 is head h *)
let shift s = if s.stream then 1 else 0
let letters s = s.heads + shift s
let rec words h l = if l = 0 then [ [] ] else List.concat_map (fun a -> List.map (fun w -> a :: w) (words h (l - 1))) (List.init h Fun.id)
let block kind w n = List.init n (fun j -> ((kind, w), j))
let reads s kind width = List.concat (List.init s.depth (fun t ->
    List.concat_map (fun w -> List.concat (List.init s.heads (fun h -> block kind (w @ [ h + shift s ]) width))) (words (letters s) t)))
let columns s = Array.of_list (reads s 0 s.head_dim @ reads s 1 s.head_dim @ List.concat_map (fun w -> block 2 w s.d_out) (words (letters s) s.depth))
(* the columns of the linear test *)
let serving s = Array.of_list (reads s 0 s.d_in @ reads s 1 s.head_dim @ List.concat_map (fun w -> block 2 w s.d_out) (words (letters s) s.depth))
(* the columns of the words without the stream's letter *)
let reduced s =
  let reads kind = List.concat (List.init s.depth (fun t -> List.concat_map (fun w -> block kind w s.head_dim) (words s.heads (t + 1)))) in
  Array.of_list (reads 0 @ reads 1 @ List.concat (List.init (s.depth + 1) (fun t -> List.concat_map (fun w -> block 2 w s.d_out) (words s.heads t))))

(* where a column stands in the walk through the tree *)
let rec room s k = if k = 0 then s.d_out else letters s * ((2 * s.head_dim) + room s (k - 1))
let position s ((kind, w), j) =
  let rec go k off = function
    | [] -> off + j
    | [ h ] when kind < 2 -> off + (h * ((2 * s.head_dim) + room s (k - 1))) + (kind * s.head_dim) + j
    | h :: w -> go (k - 1) (off + (h * ((2 * s.head_dim) + room s (k - 1))) + (2 * s.head_dim)) w in
  go s.depth 0 w

(* the tree whose entries are those of the array, in the order of the walk *)
let tree s x =
  let slice o n = Array.to_list (Array.sub x o n) in
  let rec go k o =
    if k = 0 then Leaf (slice o s.d_out)
    else Node (List.init (letters s) (fun h ->
        let o = o + (h * ((2 * s.head_dim) + room s (k - 1))) in
        ((slice o s.head_dim, slice (o + s.head_dim) s.head_dim), go (k - 1) (o + (2 * s.head_dim))))) in
  go s.depth 0

(* numbers beyond machine integers are left alone; a shape that read would not come to the end of, before it is read *)
let readable j = match field "shape" j with
  | Obj l when List.exists (fun (k, v) -> match v with
      | Num z -> Zar.gt z (Zar.of_int (if text k = "layers" then 64 else 1_000_000)) | _ -> false) l ->
    raise (Uncovered "a shape of this size")
  | _ -> ()
let within s =
  let g = Zar.of_int (letters s) in
  let size = Zar.mul (Zar.of_int (2 * s.depth * (s.head_dim + s.d_in + s.d_out))) (Zar.pow g (s.depth + 1)) in
  if Zar.geq size (Zar.shift_left Zar.one 60) then raise (Uncovered "a shape of this size")
let countable s host =
  let square = s.width * s.width in
  (* a number that is rounded to less than float64 takes three times as long to draw *)
  let dense = square * s.heads * s.depth * (match host with Some (Random (_, d, Uniform, _)) when d <> Float64 -> 3 | _ -> 1) in
  (match host with
   | Some (Random _ | Stored _) when square > 12_000_000 || dense > 45_000_000 -> raise (Uncovered "a host of this size")
   | _ -> if square > 50_000_000 then raise (Uncovered "a host of this size"));
  if room s s.depth > 5_000_000 then raise (Uncovered "so many columns")
(* how many columns there are with queries of this width, none of which is written down *)
let counted s query =
  let rec sum t power = if t = 0 then power * s.d_out else (power * s.heads * (query + s.head_dim)) + sum (t - 1) (power * letters s) in
  sum s.depth 1

(* --- hints --- *)
(* each row of R_all with the column that begins there *)
let selection s b evidence names =
  only [] evidence;
  let o = if s.stream && b <> Tied then silent_ones (ones_of s b) else ones_of s b in
  let begins ((kind, w), j) =
    let n = List.length w - 1 in
    let first = List.filteri (fun i _ -> i < n) w in
    let found = match kind with
      | 0 -> follow o s.width 0 first (o.oQ n (List.nth w n) j)
      | 1 -> follow o s.width 0 first (o.oK n (List.nth w n) j)
      | _ -> follow o s.width 0 w (o.oU j) in
    match found with [] -> reject "a column of R_all is zero" | a :: rest -> List.fold_left min a rest in
  let back = Array.make s.width ((3, []), 0) in
  Array.iter (fun name -> back.(begins name) <- name) names;
  Selection (Array.to_list back)

let vector names entries =
  let size = Array.length names and last = ref (-1) in
  if entries = [] || List.length entries > 4096 then reject "z has no entries, or too many";
  List.map (fun e -> match list e with
      | [ i; x ] ->
        let i = small_number i and x = number x in
        if i <= !last || i >= size || Zar.sign x = 0 then reject "positions of z increase and entries are not zero";
        last := i;
        (names.(i), x)
      | _ -> reject "an entry of z") entries

(* z for the host's integers in place of the entries, times a constant, in the order of the walk *)
let scaled files s h z =
  let u, v = factor files s h and x = Array.make (room s s.depth) Zar.zero in
  List.iter (fun ((((kind, w), _) as name), a) ->
      let heads = List.length (if s.stream then List.filter (fun a -> a > 0) w else w) in
      let degree = if kind = 2 then heads + 1 else heads in
      x.(position s name) <- Zar.mul a (Zar.mul (Zar.pow u degree) (Zar.pow v (s.depth + 1 - degree)))) z;
  x

let kernel files s claim evidence =
  only [ "column"; "method"; "z" ] evidence;
  let names = columns s and h = match claim with Refuted h -> h | _ -> reject "claim" in
  let z = vector names (list (field "z" evidence)) in
  let c = small_number (field "column" evidence) in
  if c < 0 || c >= Array.length names then reject "a column out of range";
  if List.assoc_opt names.(c) z = None then reject "the column's entry of z is zero";
  (* whether a head reads the column, and how many letters before it are heads *)
  let route ((kind, w), _) =
    let heads = List.length (List.filter (fun a -> a > 0) w) in
    (kind < 2, if kind < 2 && List.nth w (List.length w - 1) > 0 then heads - 1 else heads) in
  if s.stream && List.exists (fun (name, _) -> compare (route name) (route names.(c)) < 0) z then reject "a column with fewer letters";
  Kernel (tree s (scaled files s h z))

(* the entries of a tied target: [tensor, 0, h, i, j, v], increasing *)
let tensors = [ ("W_K", 1); ("W_O", 3); ("W_Q", 0); ("W_V", 2) ]
let tied_entries s j =
  let last = ref ("", []) in
  List.map (fun e -> match list e with
      | Str t :: rest ->
        let t = text t in
        (match List.map number rest with
         | [ l; h; i; j; v ] ->
           let place = List.map (fun z -> if Zar.fits_int z then Zar.to_int z else reject "a number is too large") [ l; h; i; j ] in
           let l, h, i, j = match place with [ l; h; i; j ] -> (l, h, i, j) | _ -> reject "an entry of a target" in
           let kind = match List.assoc_opt t tensors with Some k -> k | None -> reject "no tensor of a target" in
           let rows, columns = if kind = 3 then (s.head_dim, s.d_in) else (s.d_in, s.head_dim) in
           if l <> 0 || h < 0 || h >= s.heads || i < 0 || i >= rows || j < 0 || j >= columns || Zar.sign v = 0
              || compare (t, place) !last <= 0 then reject "an entry of a target";
           last := (t, place);
           ((kind, h, i, j), v)
         | _ -> reject "an entry of a target")
      | _ -> reject "an entry of a target") (list j)
(* as the list that Kernel.v asks for: W_U first, then the entries, those of W_Q and W_K times x, of W_V times y *)
let listed s first x y entries =
  let vs = Array.make (numbers s.heads s.head_dim s.d_in + 1) Zar.zero in
  vs.(0) <- first;
  List.iter (fun ((kind, h, i, j), v) ->
      let at = if kind = 3 then listed_at s.head_dim s.d_in 3 h j i else listed_at s.head_dim s.d_in kind h i j in
      vs.(at) <- (if kind < 2 then Zar.mul x v else if kind = 2 then Zar.mul y v else v)) entries;
  Array.to_list vs

let against files s claim evidence =
  only [ "method"; "row"; "target"; "z" ] evidence;
  let names = columns s and h = match claim with RefutedTied h -> h | _ -> reject "claim" in
  let z = vector names (list (field "z" evidence)) and row = small_number (field "row" evidence) in
  if row < 0 || row >= s.d_in then reject "a row out of range";
  let entries = tied_entries s (field "target" evidence) in
  (* the row of W_all z that is to be other than zero *)
  let plain = Array.make (room s s.depth) Zar.zero in
  List.iter (fun (name, a) -> plain.(position s name) <- a) z;
  let heads = letter_heads s.stream s.d_in (target s.head_dim s.d_in (listed s Zar.one Zar.one Zar.one entries)) in
  let w = List.hd (applies Zar.zero Zar.add Zar.mul Fun.id (letters s) s.head_dim s.d_in s.d_in heads (scalar s.d_in Zar.one) s.depth 0 [ tree s plain ]) in
  if Zar.sign (List.nth w row) = 0 then reject "that row of W_all z is zero";
  (* the same target for the host's integers, up to a factor at which the row does not vanish either *)
  let u, v = factor files s h in
  let x = Array.to_list (scaled files s h z) in
  let at factor = Against (x, listed s v (Zar.mul factor u) factor entries) in
  let rec least factor = if Zar.gt factor (Zar.of_int (4 * (s.depth + 1))) then reject "no factor"
    else let hint = at factor in
      match hint with Against (x, vs) when not (vanishes_at s.stream s.heads s.head_dim s.d_in s.depth [ plant (letters s) s.head_dim s.d_in s.depth 0 x ] vs) -> hint
      | _ -> least (Zar.succ factor) in
  least Zar.one

let null_vector s evidence =
  only [ "method"; "word"; "y" ] evidence;
  let names = Array.of_list (words s.heads s.depth) in
  let y = vector names (list (field "y" evidence)) in
  let w = small_number (field "word" evidence) in
  if w < 0 || w >= Array.length names then reject "a word out of range";
  let ys = Array.map (fun name -> match List.assoc_opt name y with Some x -> x | None -> Zar.zero) names in
  Null (Array.to_list ys, names.(w))

(* --- embeddings as products of letters: ((((kind, layer), head), transposed), inverted), layers from 0 --- *)
(* all tuples of n integers from 0 with sum at most total, in lexicographic order *)
let rec tuples n total =
  if n = 0 then [ [] ] else List.concat_map (fun c -> List.map (fun rest -> c :: rest) (tuples (n - 1) (total - c))) (List.init (total + 1) Fun.id)
let standard s c =
  let m l h = ((((0, l), h), false), false) and last_inverse l = ((((0, l), 0), true), true) in
  let along first w = List.mapi (fun l h -> m (first + l) h) w in
  let upto = List.init s.depth (fun t -> t + 1) and half = (s.depth + 1) / 2 in
  let each f t = List.map (fun w -> f (List.filteri (fun i _ -> i < t - 1) w) (List.nth w (t - 1))) (words s.heads t) in
  let placed = List.mapi (fun i w -> (i * s.d_in, w)) in
  let all = match c with
    | ERegister -> List.map (along 0) (words s.heads s.depth)
    | ETwoSided -> List.map (along 0) (words s.heads half)
    | ECounting -> List.map (fun counts ->
        let first = s.depth - List.fold_left ( + ) 0 counts in
        List.concat (List.mapi (fun h n -> List.init n (fun _ -> m 0 h)) (first :: counts))) (tuples (s.heads - 1) s.depth)
    | ESharedKey -> List.concat_map (fun t -> each (fun w h -> along 0 w @ [ ((((1, t - 1), h), false), false) ]) t) upto
                    @ List.concat_map (fun t -> List.map (along 0) (words s.heads t)) (0 :: upto)
    | ESharedQuery -> List.concat_map (fun t -> each (fun w h ->
        along 0 w @ [ ((((1, t - 1), h), true), false) ] @ List.init (s.depth - t + 1) (fun i -> last_inverse (t - 1 + i))) t) upto
                      @ List.map (along 0) (words s.heads s.depth) in
  (placed all, if c = ETwoSided then placed (List.map (along half) (words s.heads (s.depth - half))) else [])

let embedding s c inverses evidence =
  only [] evidence;
  let both = sense_of c = FreeBoth in
  let fixed = Zar.pow (Zar.of_int s.heads) s.depth in
  if Zar.gt fixed (Zar.of_int 20_000) then raise (Uncovered "so many words");
  if c = ESharedQuery && not inverses then reject "inverses and targets";
  let e, u = standard s c in
  let size = List.length e + List.length u and words = Zar.to_int fixed in
  let pairs = if sense_of c = Logits then words * words / s.heads else words * (if both then s.width else 1) in
  if pairs * size * s.head_dim > 2_000_000_000 then raise (Uncovered "so many words");
  Embedding (e, u)

(* the inverse of some M rows of R_all modulo p, found by elimination *)
let eliminate p r =
  let n = Array.length r and c = Array.length r.(0) in
  let rec power a e = if e = 0 then 1 else let b = power (a * a mod p) (e / 2) in if e land 1 = 1 then a * b mod p else b in
  let reduce w target =
    (* Gauss and Jordan on the rows of w, first c columns; target.(k): the row with the pivot of column k *)
    let used = Array.make (Array.length w) false in
    for k = 0 to c - 1 do
      let i = ref 0 in
      while !i < Array.length w && (used.(!i) || w.(!i).(k) = 0) do incr i done;
      if !i = Array.length w then reject "the rank modulo p is below M";
      used.(!i) <- true;
      target.(k) <- !i;
      let inv = power w.(!i).(k) (p - 2) in
      let row = Array.map (fun x -> x * inv mod p) w.(!i) in
      w.(!i) <- row;
      Array.iteri (fun i' other -> if i' <> target.(k) && other.(k) <> 0 then begin
          let f = p - other.(k) in
          for j = k to Array.length row - 1 do if row.(j) <> 0 then other.(j) <- (other.(j) + (f * row.(j))) mod p done
        end) w
    done in
  let chosen = Array.make c 0 in
  if n = c then Array.iteri (fun i _ -> chosen.(i) <- i) chosen else reduce (Array.map Array.copy r) chosen;
  Array.sort compare chosen;
  let w = Array.mapi (fun i row -> Array.append r.(row) (Array.init c (fun j -> if i = j then 1 else 0))) chosen in
  let pivot = Array.make c 0 in
  reduce w pivot;
  (chosen, Array.map (fun i -> Array.sub w.(i) c c) pivot)

let matrix_mod p rows = Array.of_list (List.map (fun r -> Array.of_list (List.map (fun z -> Zar.to_int (Zar.floor_mod z (Zar.of_int p))) r)) rows)
let product p a b =
  let n = Array.length b and c = Array.length b.(0) in
  Array.map (fun row ->
      let out = Array.make c 0 in
      for k = 0 to n - 1 do
        let f = row.(k) in
        if f <> 0 then let other = b.(k) in for j = 0 to c - 1 do out.(j) <- (out.(j) + (f * other.(j))) mod p done
      done;
      out) a
let r_all files p s h gauges names =
  let host = heads_of files s h and head = Hashtbl.create 16 in
  let host = match gauges with Some c -> tested s.head_dim s.d_out c host | None -> host in
  let get l i = match Hashtbl.find_opt head (l, i) with
    | Some x -> x
    | None -> let x = host l (i - shift s) in
      let x = (matrix_mod p x.hQ, matrix_mod p x.hK, matrix_mod p x.hV) in Hashtbl.add head (l, i) x; x in
  let u = matrix_mod p (out_of files s h) and made = Hashtbl.create 64 in
  let rec along l w last = match w with
    | [] -> last
    | 0 :: w when s.stream -> along (l + 1) w last
    | i :: w -> let _, _, v = get l i in product p v (along (l + 1) w last) in
  let block kind w = match Hashtbl.find_opt made (kind, w) with
    | Some b -> b
    | None ->
      let n = List.length w - 1 in
      let b = if kind = 2 then along 0 w u else
          let q, k, _ = get n (List.nth w n) in along 0 (List.filteri (fun i _ -> i < n) w) (if kind = 0 then q else k) in
      Hashtbl.add made (kind, w) b; b in
  Array.init s.width (fun i -> Array.map (fun ((kind, w), j) -> (block kind w).(i).(j)) names)

let random_vectors p k n =
  opened "/dev/urandom" (fun source ->
      let rec one () =
        let s = really_input_string source 4 in
        let x = Int32.to_int (String.get_int32_le s 0) land 0x7FFFFFFF in
        if x >= 0x80000000 / p * p then one () else Zar.of_int (x mod p) in
      List.init k (fun _ -> List.init n (fun _ -> one ())))

(* numbers below 2^128 *)
let random_numbers n =
  opened "/dev/urandom" (fun source -> List.init n (fun _ -> Zar.of_bits (really_input_string source 16)))

(* the least k with p^k at least 2^100 *)
let draws p =
  let rec go k q = if Zar.geq q (Zar.shift_left Zar.one 100) then k else go (k + 1) (Zar.mul q (Zar.of_int p)) in
  go 0 Zar.one
let prime_of evidence =
  let p = small_number (field "prime" evidence) in
  if p < 3 || p >= 0x80000000 then reject "the prime is out of range";
  p
(* which columns of the walk are these? *)
let masked s names =
  let mask = Array.make (room s s.depth) false in
  Array.iter (fun name -> mask.(position s name) <- true) names;
  Array.to_list mask
(* the rows of the inverse in the order of the walk *)
let walked s names inverse =
  let order = Array.mapi (fun c name -> (position s name, c)) names in
  Array.sort compare order;
  Array.to_list (Array.map (fun (_, c) -> Array.to_list (Array.map Zar.of_int inverse.(c))) order)

(* vectors that span the same as those given, each with an entry to itself, and where; modulo p they are independent there *)
let diagonal p basis =
  let residues x = Array.map (fun z -> Zar.to_int (Zar.floor_mod z (Zar.of_int p))) x in
  let basis = Array.map Array.copy basis in
  let k = Array.length basis and size = Array.length basis.(0) in
  let at = Array.make k (-1) and left = Array.map residues basis in
  let rec power a e = if e = 0 then 1 else let b = power (a * a mod p) (e / 2) in if e land 1 = 1 then a * b mod p else b in
  for i = 0 to k - 1 do
    let c = ref 0 in
    while !c < size && left.(i).(!c) = 0 do incr c done;
    if !c = size then reject "the vectors are dependent modulo p";
    at.(i) <- !c;
    let inverse = power left.(i).(!c) (p - 2) in
    for j = i + 1 to k - 1 do
      let f = left.(j).(!c) * inverse mod p in
      if f <> 0 then Array.iteri (fun n x -> left.(j).(n) <- (left.(j).(n) + ((p - f) * x)) mod p) left.(i)
    done
  done;
  (* Gauss and Jordan in integers, each row divided by the common factor of its entries *)
  for i = 0 to k - 1 do
    for j = 0 to k - 1 do
      let f = basis.(j).(at.(i)) and g = basis.(i).(at.(i)) in
      if j <> i && Zar.sign f <> 0 then begin
        let row = Array.mapi (fun n x -> Zar.sub (Zar.mul g x) (Zar.mul f basis.(i).(n))) basis.(j) in
        let common = Array.fold_left Zar.gcd Zar.zero row in
        basis.(j) <- (if Zar.sign common = 0 then row else Array.map (fun x -> Zar.divexact x common) row)
      end
    done
  done;
  (Array.to_list at, List.map Array.to_list (Array.to_list basis))

let tied_kernel files s claim evidence =
  only [ "basis"; "prime" ] evidence;
  let h = match claim with Matched (h, _) -> h | _ -> reject "claim" in
  let p = prime_of evidence and names = columns s in
  if s.width * Array.length names > 4_000_000 then raise (Uncovered "tied-kernel of this size");
  (* there the vectors for the host's integers may be dependent modulo p where those given are not *)
  if Zar.sign (Zar.floor_mod (fst (factor files s h)) (Zar.of_int p)) = 0 then raise (Uncovered "tied-kernel modulo a prime that divides the host's unit");
  let basis = Array.of_list (List.map (fun z -> scaled files s h (vector names (list z))) (list (field "basis" evidence))) in
  if basis = [||] then reject "no vector";
  let ps, zs = diagonal p basis in
  let rest = Array.of_list (List.filter (fun name -> not (List.mem (position s name) ps)) (Array.to_list names)) in
  let k = draws p and mask = masked s rest in
  if not (probable_kernel files s claim (Zar.of_int p) k mask ps zs) then reject "p is not prime, the rank is another one, or a vector is not in the kernel";
  if s.width < Array.length rest then reject "m is below the rank";
  let rows, inverse = eliminate p (r_all files p s h None rest) in
  passed_kernel files s claim (Zar.of_int p) mask (walked s rest inverse) (Array.to_list rows) zs
    (random_vectors p k (Array.length rest)) (random_numbers (numbers s.heads s.head_dim s.d_in + 1))

let modular files folder s claim evidence =
  if s.width < counted s (match claim with Serves _ -> s.d_in | _ -> s.head_dim) then reject "m is below the number of columns";
  let h, tests = match claim with Universal (h, _) -> (h, false) | Serves (h, _) -> (h, true) | _ -> reject "claim" in
  countable s (Some h);
  let names = if tests then serving s else columns s in
  let size = Array.length names in
  let p = prime_of evidence in
  let k = draws p and mask = masked s names in
  if not (probable files s claim (Zar.of_int p) k mask) then reject "p is not prime, or the rank is another one";
  let gauges = if not tests then None else begin
      only [ "method"; "prime" ] evidence;
      let c = List.init s.d_in (fun i -> List.init s.head_dim (fun j -> if i = j then Zar.one else Zar.zero)) in
      Some (fun _ _ -> c)
    end in
  let rows, inverse = match word (field "method" evidence) with
    | "witness" when not tests ->
      only [ "inverse"; "method"; "prime"; "rows" ] evidence;
      let rows = integers folder size (field "rows" evidence) in
      Array.iteri (fun i a -> if a < 0 || a >= s.width || (i > 0 && a <= rows.(i - 1)) then reject "rows increase, below m") rows;
      let b = integers folder ~bytes:(if p < 256 then 1 else if p < 65536 then 2 else 4) (size * size) (field "inverse" evidence) in
      if Array.exists (fun x -> x < 0 || x >= p) b then reject "an entry of the inverse is no residue";
      (rows, Array.init size (fun i -> Array.sub b (i * size) size))
    | "recompute" ->
      if not tests then only [ "method"; "prime" ] evidence;
      if s.width * size > 4_000_000 then raise (Uncovered "recompute of this size")
      else eliminate p (r_all files p s h gauges names)
    | _ -> reject "method" in
  let gauges = Stdlib.Option.value gauges ~default:(fun _ _ -> []) in
  passed files s claim (Zar.of_int p) mask gauges (walked s names inverse) (Array.to_list rows) (random_vectors p k size)

(* --- verdicts --- *)
(* what was proved: the claim and the shape as they stand in the file, which is what the program printed of the JSON that it read *)
let stated j =
  let claim = field "claim" j in
  let said k = match claim with Obj l -> (match List.assoc_opt (chars k) l with Some (Str t) -> text t | _ -> "") | _ -> "" in
  let host = match field "host" claim with
    | Obj l -> String.concat " " (List.filter_map (fun (_, v) -> match v with
        | Str t -> Some (text t) | Num z -> Some (Zar.to_string z) | _ -> None) l)
    | _ -> "" in
  let sizes = match field "shape" j with
    | Obj l -> String.concat " " (List.map (fun (k, v) -> text k ^ (match v with Num z -> "=" ^ Zar.to_string z | _ -> "")) l)
    | _ -> "" in
  let free = if said "free" = "" then "" else ", free: " ^ said "free" in
  Printf.sprintf "%s: %s by %s, targets: %s%s; host: %s; %s" (word (field "kind" j)) (said "verdict") (said "notion") (said "targets") free host sizes

(* a claim that is not read is malformed where all claims of its form are read. Whether it holds, and what it says *)
let judge path =
  let s = contents path in
  let j = parse s in
  readable j;
  match read (chars s) j with
  | None ->
    if text (print j) <> s then reject "not canonical JSON";
    let kind = word (field "kind" j) in
    let claim k = match field "claim" j with Obj l -> List.assoc_opt (chars k) l | _ -> None in
    let said k t = claim k = Some (Str (chars t)) in
    let streams = match field "shape" j with Obj l -> List.mem_assoc (chars "residual") l | _ -> false in
    let constructed = match claim "host" with
      | Some (Obj l) -> (match List.assoc_opt (chars "construction") l with Some (Str t) -> text t | _ -> "")
      | _ -> "" in
    let all_read = match kind with
      | "rank-permutation" | "rank-modular" | "rank-deficient" | "tied-kernel" -> true
      | "linear-test" -> not streams
      | "identity" -> List.mem constructed [ "shared-key"; "register"; "counting"; "two-sided" ]
      | _ -> false in
    if all_read then reject "no well-formed claim of this kind";
    raise (Uncovered (if List.mem kind [ "linear-test"; "lower-bound"; "identity" ] then kind ^ " of this form" else kind))
  | Some (shape, claim) ->
    let evidence = field "evidence" j and folder = Filename.dirname path in
    within shape;
    let made = Hashtbl.create 2 in
    let files tied wanted = match Hashtbl.find_opt made (tied, wanted) with
      | Some w -> w
      | None -> let w = Weights.host folder shape tied (text wanted) in Hashtbl.add made (tied, wanted) w; w in
    let certain hint = certain files shape claim hint in
    let how () = word (field "method" evidence) in
    let dimension () = only [ "method" ] evidence; certain Dimension in
    let holds = (match claim with
     | Universal (Built Tied, _) when shape.stream -> certain (selection shape Tied evidence (reduced shape))
     | Universal (Built b, _) -> certain (selection shape b evidence (columns shape))
     | UniversalTied (Built b, _) -> certain (selection shape b evidence (reduced shape))
     | Universal _ | Serves _ -> modular files folder shape claim evidence
     | UniversalTied _ -> reject "claim"
     | Matched (h, _) -> countable shape (Some h); tied_kernel files shape claim evidence
     | RefutedTied h ->
       if how () <> "tied-target" then reject "method";
       countable shape (Some h); certain (against files shape claim evidence)
     | Refuted h -> (match how () with
         | "dimension" -> (match h with Stored (t, w) -> ignore (files t w) | _ -> ()); dimension ()
         | "kernel-vector" -> countable shape (Some h); certain (kernel files shape claim evidence)
         | _ -> reject "method")
     | Embeds (c, inverses) -> certain (embedding shape c inverses evidence)
     | NullVector _ -> if how () <> "null-vector" then reject "method"; countable shape None; certain (null_vector shape evidence)
     | _ -> (match how () with
         | "dimension" -> dimension () || raise (Uncovered "lower-bound of this form")
         | _ -> raise (Uncovered "lower-bound of this form"))) in
    (holds, stated j)

(* a folder's certificates, and those of the folders in it; links to folders are not followed *)
let rec below folder =
  List.concat_map (fun name ->
      let inner = Filename.concat folder name in
      match (Unix.lstat inner).st_kind with
      | Unix.S_DIR -> below inner
      | Unix.S_LNK when Sys.file_exists inner && Sys.is_directory inner -> []
      | _ -> if Filename.check_suffix name ".json" then [ inner ] else [])
    (List.sort compare (Array.to_list (Sys.readdir folder)))
(* other JSON may lie in a folder *)
let certificate path =
  let mark = "\"format\":\"utfproof-certificate\"" in
  let wide = String.length mark in
  let rec from s i = match String.index_from_opt s i '"' with
    | Some k when k + wide <= String.length s -> String.sub s k wide = mark || from s (k + 1)
    | _ -> false in
  match contents path with s -> from s 0 | exception (Reject _ | Sys_error _ | End_of_file | Unix.Unix_error _) -> true
let files path = if Sys.is_directory path then List.filter certificate (below path) else [ path ]

(* a name in one line of ASCII *)
let plain name =
  String.concat "" (List.map (fun c -> if c < ' ' || c > '~' then Printf.sprintf "\\x%02x" (Char.code c) else String.make 1 c) (chars name))

(* seconds of a processor that a certificate may take: then it is left alone *)
exception Late
let within_seconds n f =
  let timer x = ignore (Unix.setitimer Unix.ITIMER_VIRTUAL { Unix.it_interval = 0.; it_value = x }) in
  Sys.set_signal Sys.sigvtalrm (Sys.Signal_handle (fun _ -> raise Late));
  Fun.protect ~finally:(fun () -> timer 0.) (fun () -> timer n; f ())

let () =
  if Array.to_list Sys.argv |> List.tl = [ "--version" ] then (print_endline Built.trusted; exit 0);
  let seconds, paths = match List.tl (Array.to_list Sys.argv) with
    | "--seconds" :: n :: rest -> (Stdlib.Option.value (Stdlib.Option.map float_of_int (int_of_string_opt n)) ~default:(-1.), rest)
    | rest -> (0., rest) in
  if seconds < 0. || paths = [] || List.exists (fun p -> String.length p > 0 && p.[0] = '-') paths then begin
    prerr_endline "usage: utfcheck [--seconds N] FILE-OR-FOLDER..."; exit 2
  end;
  let codes = ref [] and count = ref 0 in
  let ended code = codes := code :: !codes in
  let verdict path =
    incr count;
    let start = Unix.gettimeofday () in
    let said = match within_seconds seconds (fun () -> judge path) with
      | true, what -> "valid, proved " ^ what
      | false, _ -> ended 1; "rejected (the check fails)"
      | exception Reject why -> ended 1; "rejected (" ^ why ^ ")"
      | exception Uncovered what -> ended 4; "kind not covered (" ^ what ^ ")"
      | exception (Sys_error _ | End_of_file | Invalid_argument _ | Failure _ | Not_found | Zar.Overflow | Division_by_zero | Unix.Unix_error _) ->
        ended 1; "rejected (malformed)"
      | exception (Late | Fun.Finally_raised Late) -> ended 3; Printf.sprintf "not checked (over %.0f seconds of a processor)" seconds
      | exception (Out_of_memory | Stack_overflow) -> ended 3; "not checked (over the limits of this machine)" in
    Printf.printf "%s: %s, %.1f s\n%!" (plain path) said (Unix.gettimeofday () -. start) in
  List.iter (fun p -> match files p with
      | found -> List.iter verdict found
      | exception Sys_error why -> prerr_endline ("utfcheck: " ^ plain why); ended 2) paths;
  if !count = 0 && !codes = [] then (prerr_endline "utfcheck: no certificates there"; ended 2);
  (* the format's order: a certificate that is rejected is told first; 4 for what is not covered *)
  exit (Stdlib.Option.value (List.find_opt (fun code -> List.mem code !codes) [ 1; 2; 3; 4 ]) ~default:0)
