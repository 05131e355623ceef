# U-Net: predicts a class for every pixel of images of any sort, without pretrained weights.
#
# Designed for images of any size from 16x16. Targets are masks, [N, H, W]: the number of each pixel's class,
# or 255 for pixels that do not count. The output has a score for each pixel and class: [N, H, W, classes].
# To train without a GPU, it processes images larger than 80 pixels at a lower resolution; on a GPU, increase LARGEST.
# Recommended settings: Adam, learning rate 0.002 with cosine decay, batch size 8, 30 epochs, per-channel mean, random
# horizontal flips and contrast.
#
# paper: Ronneberger, Fischer and Brox, 2015, “U-Net: Convolutional Networks for Biomedical Image Segmentation”, with
# paper: borders kept and batch normalization.
# settings: solver_type=ADAM learning_rate=0.002 lr_policy=cosine batch_size=8 train_epochs=30 use_mean=pixel
# settings: aug_flip=fliplr aug_contrast=0.2
# kinds: image-segmentation
# smallest: 16

from keras import layers

# Larger images are reduced by 2, 4, … until neither side exceeds this number of pixels. On a GPU, increase it to the
# size of the images for sharper masks.
LARGEST = 80

# Filters at each depth: a quarter of the paper's 64 to 1024.
WIDTHS = [16, 32, 64, 128]
DEEPEST = 256


class UserModel(Tower):
    @model_property
    def inference(self):
        net = self.x / 64.0
        scale = 1
        while max(self.input_shape[:2]) > scale * LARGEST:
            scale *= 2
        if scale > 1:
            net = layers.Conv2D(WIDTHS[0], 2 * scale, strides=scale, padding="same", name="reduce")(net)
        passed = []
        # Encoder: halve the resolution and increase the receptive field.
        for depth, filters in enumerate(WIDTHS, 1):
            net = self.two_convolutions(net, filters, f"down{depth}")
            passed.append(net)
            net = layers.MaxPooling2D(2, padding="same")(net)
        net = self.two_convolutions(net, DEEPEST, "bottom")
        # Decoder: upsample and concatenate the features of the same resolution.
        for depth, filters in reversed(list(enumerate(WIDTHS, 1))):
            net = layers.Conv2DTranspose(filters, 2, strides=2, padding="same", name=f"enlarge{depth}")(net)
            same = passed.pop()
            # Sides that were odd before downsampling are one pixel too long after upsampling.
            net = tf.concat([same, net[:, : same.shape[1], : same.shape[2]]], axis=3)
            net = self.two_convolutions(net, filters, f"up{depth}")
        scores = layers.Conv2D(max(2, self.nclasses or 0), 1, name="scores")(net)
        return scores if scale == 1 else tf.image.resize(scores, self.input_shape[:2])

    def two_convolutions(self, net, filters, name):
        for number in (1, 2):
            net = layers.Conv2D(
                filters,
                3,
                padding="same",
                use_bias=False,
                kernel_initializer="he_normal",
                name=f"{name}_conv{number}",
            )(net)
            normalize = layers.BatchNormalization(momentum=0.9, name=f"{name}_norm{number}")
            net = tf.nn.relu(normalize(net, training=self.is_training))
        return net

    @model_property
    def loss(self):
        # The Dice loss helps with classes that cover few pixels.
        return digits.segmentation_loss(self.inference, self.y) + digits.dice_loss(self.inference, self.y)
