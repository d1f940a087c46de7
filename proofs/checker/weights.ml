(* Weights from a safetensors file, as integers with one power of two below them. For a certificate about a file this is what has to be
   trusted besides the proofs: that these are the numbers in it, and that the digest is its own (format, section 4.8). *)
open Program
open Json

type tensor = { name : string; kind : string; axes : int list; data : string }

let exponent = function
  | "F64" -> 1074 | "F32" -> 149 | "F16" -> 24 | "BF16" -> 133
  | "I8" | "I16" | "I32" | "I64" | "U8" | "U16" | "U32" | "U64" -> 0
  | _ -> reject "a type of weights"
let bytes kind = match kind with
  | "I8" | "U8" -> 1 | "F16" | "BF16" | "I16" | "U16" -> 2 | "F32" | "I32" | "U32" -> 4 | _ -> 8

(* entry number i times 2^exponent *)
let entry t i =
  let n = bytes t.kind in
  let rec raw k acc = if k < 0 then acc else raw (k - 1) (Zar.add (Zar.shift_left acc 8) (Zar.of_int (Char.code t.data.[(i * n) + k]))) in
  let u = raw (n - 1) Zar.zero in
  let binary bits significand =
    let sign = Zar.testbit u (bits - 1) in
    let fraction = Zar.extract u 0 significand in
    let e = Zar.to_int (Zar.extract u significand (bits - 1 - significand)) in
    if e = (1 lsl (bits - 1 - significand)) - 1 then reject "an entry that is not finite";
    let size = if e = 0 then fraction else Zar.shift_left (Zar.add fraction (Zar.shift_left Zar.one significand)) (e - 1) in
    if sign then Zar.neg size else size in
  match t.kind with
  | "F64" -> binary 64 52 | "F32" -> binary 32 23 | "F16" -> binary 16 10 | "BF16" -> binary 16 7
  | k when k.[0] = 'I' && Zar.testbit u ((8 * n) - 1) -> Zar.sub u (Zar.shift_left Zar.one (8 * n))
  | _ -> u

let little s o n = let r = ref 0 in for k = n - 1 downto 0 do r := (!r lsl 8) lor Char.code s.[o + k] done; !r

(* tensors by name *)
let tensors s =
  if String.length s < 8 || s.[7] <> '\000' then reject "no safetensors";
  let n = little s 0 8 in
  if n < 2 || n > 16777216 || 8 + n > String.length s then reject "no safetensors";
  let entries = match parse_loose (String.sub s 8 n) with Obj l -> List.map (fun (k, v) -> (text k, v)) l | _ -> reject "no safetensors" in
  let one (name, j) =
    (match j with Obj l when List.sort compare (List.map (fun (k, _) -> text k) l) = [ "data_offsets"; "dtype"; "shape" ] -> () | _ -> reject "fields of a tensor");
    match List.map small_number (list (field "data_offsets" j)) with
    | [ a; b ] when 0 <= a && a <= b && 8 + n + b <= String.length s ->
      { name; kind = word (field "dtype" j); axes = List.map small_number (list (field "shape" j)); data = String.sub s (8 + n + a) (b - a) }, (a, b)
    | _ -> reject "offsets" in
  let found = List.map one (List.remove_assoc "__metadata__" entries) in
  let ended = List.fold_left (fun at (a, b) -> if a <> at then reject "gaps or overlaps" else b) 0 (List.sort compare (List.map snd found)) in
  let found = List.map fst found in
  let names = List.sort_uniq compare (List.map fst entries) in
  if 8 + n + ended <> String.length s || List.length names <> List.length entries then reject "no safetensors";
  List.sort (fun a b -> compare a.name b.name) found

let digest stream found =
  let line t = Printf.sprintf "%s %s %s\n%s" t.name t.kind (String.concat "," (List.map string_of_int t.axes)) t.data in
  Sha256.hex (String.concat "" (List.map line found) ^ if stream then "residual true\n" else "")

let find folder stream wanted =
  let ends name = Filename.check_suffix name ".safetensors" in
  let files = List.filter ends (List.sort compare (Array.to_list (Sys.readdir (if folder = "" then "." else folder)))) in
  let fits name =
    match tensors (contents (Filename.concat folder name)) with
    | found -> if digest stream found = wanted then Some found else None
    | exception (Reject _ | Uncovered _ | Invalid_argument _ | Failure _ | Sys_error _ | Unix.Unix_error _ | End_of_file) -> None in
  match List.find_map fits files with Some found -> found | None -> raise (Uncovered "weights that are not beside it")

let host folder (s : shape) tied wanted =
  let found = find folder s.stream wanted in
  let names = List.map (fun t -> t.name) found in
  let factored = names = [ "R_K"; "R_Q"; "R_Vo"; "R_Vv"; "U" ] in
  if not (factored || names = [ "R_K"; "R_Q"; "R_V"; "U" ]) then reject "weights with other tensors";
  let get name = List.find (fun t -> t.name = name) found in
  let m = s.width and layers = if tied then [ s.heads ] else [ s.depth; s.heads ] in
  let expect name axes = if (get name).axes <> axes then reject "weights of another shape" in
  expect "R_Q" (layers @ [ m; s.head_dim ]); expect "R_K" (layers @ [ m; s.head_dim ]); expect "U" [ m; s.d_out ];
  let inner = if factored then (match List.rev (get "R_Vv").axes with v :: _ -> v | [] -> 0) else 0 in
  if factored then (expect "R_Vv" (layers @ [ m; inner ]); expect "R_Vo" (layers @ [ inner; m ])) else expect "R_V" (layers @ [ m; m ]);
  List.iter (fun t -> let n = List.fold_left ( * ) 1 t.axes in
    if String.length t.data <> n * bytes t.kind then reject "data of another length";
    for i = 0 to n - 1 do ignore (entry t i) done) found;
  let e name = exponent (get name).kind in
  let ev = if factored then e "R_Vv" + e "R_Vo" else e "R_V" in
  let top = List.fold_left max ev [ e "R_Q"; e "R_K"; e "U" ] in
  let matrix name rows columns l h shift =
    let t = get name and at = if tied then h else (l * s.heads) + h in
    List.init rows (fun i -> List.init columns (fun j -> Zar.shift_left (entry t ((at * rows * columns) + (i * columns) + j)) shift)) in
  let values l h =
    if factored then
      let a = matrix "R_Vv" m inner l h (top - ev) and b = matrix "R_Vo" inner m l h 0 in
      List.map (fun row -> List.init m (fun j ->
          List.fold_left2 (fun acc x r -> Zar.add acc (Zar.mul x (List.nth r j))) Zar.zero row b)) a
    else matrix "R_V" m m l h (top - ev) in
  let made = Hashtbl.create 16 in
  { wS = (fun l h -> match Hashtbl.find_opt made (l, h) with
        | Some x -> x
        | None ->
          if l >= s.depth || h >= s.heads then { hQ = []; hK = []; hV = [] } else
          let x = { hQ = matrix "R_Q" m s.head_dim l h (top - e "R_Q"); hK = matrix "R_K" m s.head_dim l h (top - e "R_K"); hV = values l h } in
          Hashtbl.add made (l, h) x; x);
    wU = (let t = get "U" in List.init m (fun i -> List.init s.d_out (fun j -> Zar.shift_left (entry t ((i * s.d_out) + j)) (top - e "U"))));
    wE = top }
