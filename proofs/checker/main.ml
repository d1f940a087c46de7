(* utfcheck: reads certificates, hands them to the verified program with hints, prints one verdict each. What is written here need
   not be trusted for a "valid", but for the randomness of the vectors: it can only find bad hints, and reject. *)
open Program

exception Reject of string
exception Uncovered of string

let reject why = raise (Reject why)
let chars s = List.init (String.length s) (String.get s)
let text l = String.of_seq (List.to_seq l)
let opened path use = let c = open_in_bin path in Fun.protect ~finally:(fun () -> close_in_noerr c) (fun () -> use c)
let contents path = opened path (fun c -> really_input_string c (in_channel_length c))

(* JSON as canonical certificates have it; a string of digits is a number of 2^53 or more *)
let parse s =
  let n = String.length s and i = ref 0 in
  let fail () = reject "not JSON of a certificate" in
  let peek () = if !i < n then s.[!i] else fail () in
  let eat c = if peek () = c then incr i else fail () in
  let upto () = match String.index_from_opt s !i '"' with
    | Some k -> let r = String.sub s !i (k - !i) in i := k + 1; r
    | None -> fail () in
  let digits s = let s = if s <> "" && s.[0] = '-' then String.sub s 1 (String.length s - 1) else s in
    String.length s >= 16 && String.for_all (fun c -> c >= '0' && c <= '9') s && String.length s < 100_000 in
  let rec items close one =
    if peek () = close then (incr i; [])
    else
      let rec go acc =
        let acc = one () :: acc in
        if peek () = ',' then (incr i; go acc) else (eat close; List.rev acc) in
      go [] in
  let rec value depth () =
    if depth > 40 then fail () else
    match peek () with
    | '"' -> incr i; let t = upto () in
      if digits t && Zar.geq (Zar.abs (Zar.of_string t)) (Zar.shift_left Zar.one 53) then Num (Zar.of_string t) else Str (chars t)
    | '[' -> incr i; Arr (items ']' (value (depth + 1)))
    | '{' -> incr i; Obj (items '}' (fun () -> eat '"'; let k = upto () in eat ':'; (chars k, value (depth + 1) ())))
    | 't' -> if !i + 4 <= n && String.sub s !i 4 = "true" then (i := !i + 4; Yes) else fail ()
    | _ -> let b = !i in
      if peek () = '-' then incr i;
      while !i < n && s.[!i] >= '0' && s.[!i] <= '9' do incr i done;
      if !i = b || !i - b > 20 || (!i = b + 1 && s.[b] = '-') then fail () else Num (Zar.of_string (String.sub s b (!i - b))) in
  let v = value 0 () in
  if !i < n then fail () else v

let field k = function
  | Obj l -> (match List.assoc_opt (chars k) l with Some v -> v | None -> reject ("no field " ^ k))
  | _ -> reject "no object"
let only keys = function
  | Obj l when List.map (fun (k, _) -> text k) l = keys -> ()
  | _ -> reject "evidence has other fields than it may"
let number = function Num z -> z | _ -> reject "no number"
let small_number j = let z = number j in if Zar.fits_int z then Zar.to_int z else reject "a number is too large"
let list = function Arr l -> l | _ -> reject "no array"
let word = function Str s -> text s | _ -> reject "no string"

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
  if String.length s <> bytes * small_number (field "length" j) then reject "length of a sidecar";
  Array.init (String.length s / bytes) (fun i ->
      if bytes = 2 then String.get_uint16_le s (2 * i)
      else Int32.to_int (String.get_int32_le s (4 * i)) land 0xFFFFFFFF)
let integers folder ?(bytes = 4) length j =
  let a = match j with
    | Arr l -> if length > 4096 then reject "an array of this length is a sidecar" else Array.of_list (List.map small_number l)
    | _ -> if length <= 4096 then reject "an array of this length is inline" else sidecar folder bytes j in
  if Array.length a <> length then reject "an array of another length" else a

(* columns in canonical order: kind 0 Q, 1 K, 2 OV, the word of heads, the coordinate *)
let rec words h l = if l = 0 then [ [] ] else List.concat_map (fun a -> List.map (fun w -> a :: w) (words h (l - 1))) (List.init h Fun.id)
let columns s =
  let block kind w n = List.init n (fun j -> ((kind, w), j)) in
  let reads kind = List.concat (List.init s.depth (fun t -> List.concat_map (fun w -> block kind w s.head_dim) (words s.heads (t + 1)))) in
  Array.of_list (reads 0 @ reads 1 @ List.concat_map (fun w -> block 2 w s.d_out) (words s.heads s.depth))

(* where a column stands in the walk through the tree *)
let rec room s k = if k = 0 then s.d_out else s.heads * ((2 * s.head_dim) + room s (k - 1))
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
    else Node (List.init s.heads (fun h ->
        let o = o + (h * ((2 * s.head_dim) + room s (k - 1))) in
        ((slice o s.head_dim, slice (o + s.head_dim) s.head_dim), go (k - 1) (o + (2 * s.head_dim))))) in
  go s.depth 0

(* --- hints --- *)
let selection folder s b evidence =
  only [ "rows" ] evidence;
  let names = columns s and o = ones_of s b in
  let lands ((kind, w), j) =
    let n = List.length w - 1 in
    let first = List.filteri (fun i _ -> i < n) w in
    let found = match kind with
      | 0 -> follow o s.width 0 first (o.oQ n (List.nth w n) j)
      | 1 -> follow o s.width 0 first (o.oK n (List.nth w n) j)
      | _ -> follow o s.width 0 w (o.oU j) in
    match found with [ a ] -> a | _ -> reject "a column of R_all is no unit vector" in
  let rows = match field "rows" evidence with
    | Str t when text t = "standard" -> Array.map lands names
    | j -> integers folder (Array.length names) j in
  let back = Array.make s.width ((3, []), 0) in
  Array.iteri (fun c a -> if a < 0 || a >= s.width then reject "a row is out of range" else back.(a) <- names.(c)) rows;
  Selection (Array.to_list back)

let kernel s claim evidence =
  only [ "column"; "distance_squared"; "method"; "z" ] evidence;
  let names = columns s and h = match claim with Refuted h -> h | _ -> reject "claim" in
  let size = Array.length names in
  let u, v = factor s h and last = ref (-1) in
  let z = Array.make size Zar.zero and scaled = Array.make size Zar.zero in
  let entries = list (field "z" evidence) in
  if entries = [] || List.length entries > 4096 then reject "z has no entries, or too many";
  List.iter (fun e -> match list e with
      | [ i; x ] ->
        let i = small_number i and x = number x in
        if i <= !last || i >= size || Zar.sign x = 0 then reject "positions of z increase and entries are not zero";
        last := i;
        z.(i) <- x;
        let (kind, w), _ = names.(i) in
        let degree = if kind = 2 then s.depth + 1 else List.length w in
        scaled.(position s names.(i)) <- Zar.mul x (Zar.mul (Zar.pow u degree) (Zar.pow v (s.depth + 1 - degree)))
      | _ -> reject "an entry of z") entries;
  let c = small_number (field "column" evidence) in
  if c < 0 || c >= size || Zar.sign z.(c) = 0 then reject "the column's entry of z is zero";
  let square = Array.fold_left (fun a x -> Zar.add a (Zar.mul x x)) Zar.zero z in
  (match list (field "distance_squared" evidence) with
   | [ n; q ] ->
     let n = number n and q = number q in
     if Zar.sign q <= 0 || not (Zar.equal (Zar.gcd n q) Zar.one) || not (Zar.equal (Zar.mul n square) (Zar.mul q (Zar.mul z.(c) z.(c)))) then
       reject "distance_squared is another number"
   | _ -> reject "distance_squared");
  Kernel (tree s scaled)

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
let r_all p s h =
  let head = Hashtbl.create 16 in
  let get l i = match Hashtbl.find_opt head (l, i) with
    | Some x -> x
    | None -> let x = heads_of s h l i in
      let x = (matrix_mod p x.hQ, matrix_mod p x.hK, matrix_mod p x.hV) in Hashtbl.add head (l, i) x; x in
  let u = matrix_mod p (out_of s h) in
  let rec along l w last = match w with [] -> last | i :: w -> let _, _, v = get l i in product p v (along (l + 1) w last) in
  let blocks kind = List.concat (List.init s.depth (fun t -> List.map (fun w ->
      let first = List.filteri (fun i _ -> i < t) w in
      let q, k, _ = get t (List.nth w t) in along 0 first (if kind = 0 then q else k)) (words s.heads (t + 1)))) in
  let all = blocks 0 @ blocks 1 @ List.map (fun w -> along 0 w u) (words s.heads s.depth) in
  Array.init s.width (fun i -> Array.concat (List.map (fun b -> b.(i)) all))

let random_vectors p k n =
  opened "/dev/urandom" (fun source ->
      let rec one () =
        let s = really_input_string source 4 in
        let x = Int32.to_int (String.get_int32_le s 0) land 0x7FFFFFFF in
        if x >= 0x80000000 / p * p then one () else Zar.of_int (x mod p) in
      List.init k (fun _ -> List.init n (fun _ -> one ())))

let modular folder s claim evidence =
  let h = match claim with Universal (h, _) -> h | _ -> reject "claim" in
  let size = Array.length (columns s) in
  let p = small_number (field "prime" evidence) in
  if p < 3 || p >= 0x80000000 then reject "the prime is out of range";
  let rec draws k q = if Zar.geq q (Zar.shift_left Zar.one 100) then k else draws (k + 1) (Zar.mul q (Zar.of_int p)) in
  let k = draws 0 Zar.one in
  if not (probable s claim (Zar.of_int p) k) then reject "p is not prime, or the rank is another one";
  if s.width < size then reject "m is below M";
  let rows, inverse = match word (field "method" evidence) with
    | "witness" ->
      only [ "inverse"; "method"; "prime"; "rows" ] evidence;
      let rows = integers folder size (field "rows" evidence) in
      Array.iteri (fun i a -> if a < 0 || a >= s.width || (i > 0 && a <= rows.(i - 1)) then reject "rows increase, below m") rows;
      let b = integers folder ~bytes:(if p < 65536 then 2 else 4) (size * size) (field "inverse" evidence) in
      if Array.exists (fun x -> x < 0 || x >= p) b then reject "an entry of the inverse is no residue";
      (rows, Array.init size (fun i -> Array.sub b (i * size) size))
    | "recompute" ->
      only [ "method"; "prime" ] evidence;
      if s.width * size > 4_000_000 then raise (Uncovered "recompute of this size")
      else eliminate p (r_all p s h)
    | _ -> reject "method" in
  let b = Array.make size [] in
  Array.iteri (fun c name -> b.(position s name) <- Array.to_list (Array.map Zar.of_int inverse.(c))) (columns s);
  passed s claim (Zar.of_int p) (Array.to_list b) (Array.to_list rows) (random_vectors p k size)

(* --- verdicts --- *)
let kinds = [ "rank-permutation"; "rank-modular"; "rank-deficient"; "lower-bound" ]
let judge path =
  let s = contents path in
  let j = parse s in
  match read (chars s) j with
  | None ->
    if text (print j) <> s then reject "not canonical JSON";
    let kind = word (field "kind" j) in
    raise (Uncovered (if List.mem kind kinds then kind ^ " of this form" else kind))
  | Some (shape, claim) ->
    let evidence = field "evidence" j and folder = Filename.dirname path in
    let certain hint = certain shape claim hint in
    let how () = word (field "method" evidence) in
    (match claim with
     | Universal (Built b, _) -> certain (selection folder shape b evidence)
     | Universal _ -> modular folder shape claim evidence
     | Refuted _ -> (match how () with
         | "dimension" -> only [ "method" ] evidence; certain Dimension
         | "kernel-vector" -> certain (kernel shape claim evidence)
         | _ -> raise (Uncovered "rank-deficient of this form"))
     | NoneMatches | NoneShares _ -> (match how () with
         | "dimension" -> only [ "method" ] evidence;
           certain Dimension || raise (Uncovered "lower-bound of this form")
         | _ -> raise (Uncovered "lower-bound of this form")))

let rec files path =
  if Sys.is_directory path then
    List.concat_map (fun name ->
        let inner = Filename.concat path name in
        if Sys.is_directory inner || Filename.check_suffix name ".json" then files inner else [])
      (List.sort compare (Array.to_list (Sys.readdir path)))
  else [ path ]

let () =
  let paths = List.tl (Array.to_list Sys.argv) in
  if paths = [] || List.exists (fun p -> String.length p > 0 && p.[0] = '-') paths then begin
    prerr_endline "usage: utfcheck FILE-OR-FOLDER..."; exit 2
  end;
  let worst = ref 0 and count = ref 0 in
  let verdict path =
    incr count;
    let start = Unix.gettimeofday () in
    let said = match judge path with
      | true -> "valid"
      | false -> worst := max !worst 1; "rejected (the check fails)"
      | exception Reject why -> worst := max !worst 1; "rejected (" ^ why ^ ")"
      | exception Uncovered what -> "kind not covered (" ^ what ^ ")"
      | exception (Sys_error _ | End_of_file | Invalid_argument _ | Failure _ | Not_found | Zar.Overflow | Division_by_zero | Unix.Unix_error _) ->
        worst := max !worst 1; "rejected (malformed)"
      | exception (Out_of_memory | Stack_overflow) -> worst := 3; "not checked (over the limits of this machine)" in
    Printf.printf "%s: %s, %.1f s\n%!" path said (Unix.gettimeofday () -. start) in
  List.iter (fun p -> match files p with
      | found -> List.iter verdict found
      | exception Sys_error why -> prerr_endline ("utfcheck: " ^ why); worst := max !worst 2) paths;
  if !count = 0 && !worst = 0 then (prerr_endline "utfcheck: no certificates there"; worst := 2);
  exit !worst
