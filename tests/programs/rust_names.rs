// A program whose functions have names of all kinds: traits, closures, generics, constants, pointers, letters beyond ASCII.
#![allow(uncommon_codepoints)]
use std::fmt::Debug;

trait Shop {
    fn go(&self, x: u32) -> u32;
}

impl<U: Debug> Shop for Vec<U> {
    #[inline(never)]
    fn go(&self, x: u32) -> u32 {
        println!("{:?}", self);
        x
    }
}

struct Ring<const N: usize, const C: char, const B: bool, const I: i16>;

impl<const N: usize, const C: char, const B: bool, const I: i16> Ring<N, C, B, I> {
    #[inline(never)]
    fn turn<'a, T: ?Sized + Debug>(&self, what: &'a T) -> usize {
        println!("{:?} {} {} {}", what, C, B, I);
        N
    }
}

#[inline(never)]
fn apply<F: Fn(u32) -> u32>(f: F) -> u32 {
    f(3)
}

#[inline(never)]
fn each<T>(f: T, _kind: std::marker::PhantomData<T>) -> usize {
    std::hint::black_box(&f);
    std::mem::size_of::<T>()
}

mod größe {
    #[inline(never)]
    pub fn 測る(x: &dyn for<'a> Fn(&'a str) -> &'a str) -> usize {
        x("abc").len()
    }
}

extern "C" fn back(x: i32) -> i32 {
    x
}

fn main() {
    let v = vec![1u8];
    let sum = apply(|x| apply(|y| v.go(x + y)));
    let ring = Ring::<7, 'x', true, -3>.turn("text") + Ring::<0, '\n', false, 3>.turn(&[1, 2][..]);
    let function: extern "C" fn(i32) -> i32 = back;
    let bytes = each(function, std::marker::PhantomData)
        + each([(0u8, 1i128); 3], std::marker::PhantomData)
        + each(std::ptr::null::<*mut str>(), std::marker::PhantomData)
        + each(Some(Box::new(|s: &str| s.len()) as Box<dyn Fn(&str) -> usize + Send>), std::marker::PhantomData);
    println!("{} {} {} {}", sum, ring, bytes, größe::測る(&|s| &s[1..]));
}
