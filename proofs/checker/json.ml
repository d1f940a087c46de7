(* Files, and JSON as canonical certificates have it; a reader that need not be trusted. *)
open Program

exception Reject of string
exception Uncovered of string

let reject why = raise (Reject why)
let chars s = List.init (String.length s) (String.get s)
let text l = String.of_seq (List.to_seq l)
let opened path use = let c = open_in_bin path in Fun.protect ~finally:(fun () -> close_in_noerr c) (fun () -> use c)
(* of a regular file: a pipe would have to be waited for *)
let contents path =
  if (Unix.stat path).st_kind <> Unix.S_REG then reject "no regular file";
  opened path (fun c -> really_input_string c (in_channel_length c))

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
    let number = String.length s >= 16 && String.for_all (fun c -> c >= '0' && c <= '9') s in
    if number && String.length s > 100_000 then raise (Uncovered "an integer of so many digits") else number in
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

(* the same for JSON with white space *)
let parse_loose s =
  let b = Buffer.create (String.length s) and inside = ref false in
  String.iter (fun c ->
      if c = '"' then inside := not !inside;
      if c = '\\' then reject "an escape";
      if !inside || not (c = ' ' || c = '\n' || c = '\t' || c = '\r') then Buffer.add_char b c) s;
  parse (Buffer.contents b)
